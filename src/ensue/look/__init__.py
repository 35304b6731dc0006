"""Views: functions that return one chart each."""
