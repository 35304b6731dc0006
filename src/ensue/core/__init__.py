"""What every room stands on: settings, errors, seeds, whole files, the lazy table."""
