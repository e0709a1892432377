"""Functions from DataFrames to DataFrames that read and write nothing."""
