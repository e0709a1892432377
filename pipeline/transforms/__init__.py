"""What is made of rows: functions from DataFrames to DataFrames that read and write nothing."""
