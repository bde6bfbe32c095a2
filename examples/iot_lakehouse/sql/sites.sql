SELECT
    site,
    COUNT(DISTINCT device) AS devices,
    COUNT(*) AS readings,
    ROUND(AVG(temperature), 1) AS mean_temperature,
    ROUND(MAX(temperature), 1) AS max_temperature,
    ROUND(AVG(humidity), 1) AS mean_humidity,
    COUNT(humidity) AS with_humidity
FROM danube_lake.iot.readings
GROUP BY site
ORDER BY site
