"""What the benchmark scripts share. They are run as programs from this repository; nothing is installed."""
