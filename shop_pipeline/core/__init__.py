"""What loading, judging and verifying days means. Imports no dagster: a Spark session and a folder are enough."""
