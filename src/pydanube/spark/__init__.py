"""Topics in Spark: the data source `danube`, typed rows, lakehouse tables, pipelines and maintenance jobs."""
