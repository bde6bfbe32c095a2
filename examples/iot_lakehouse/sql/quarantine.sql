SELECT
    _offset AS offset,
    _routing_key AS device,
    _schema_version AS version,
    _reason AS reason,
    STRING(payload) AS payload
FROM danube_lake.iot.readings_quarantine
ORDER BY _offset
LIMIT 8
