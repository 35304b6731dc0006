"""One function for each word people type; they return data and print nothing."""
