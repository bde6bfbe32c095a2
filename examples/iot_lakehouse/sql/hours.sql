SELECT
    site,
    DATE_TRUNC('HOUR', measured_at) AS hour,
    AVG(temperature) AS temperature,
    SUM(power) / COUNT(DISTINCT measured_at) / 1000 AS kilowatts,
    AVG(humidity) AS humidity
FROM danube_lake.iot.readings
GROUP BY site, hour
ORDER BY site, hour
