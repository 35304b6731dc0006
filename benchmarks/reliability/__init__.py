"""What must hold under stress: promises, each measured against its target."""
