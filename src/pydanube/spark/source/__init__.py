"""Reading topics: the data source `danube`, from options to slices of segments and rows."""
