-- zone_known: whether the server knows a time zone by this name. What AT TIME ZONE takes besides, such as GMT+2, means
-- the opposite of what it says.
-- Rows: one. Locks: none.
SELECT EXISTS (SELECT FROM pg_timezone_names() AS z WHERE z.name = @zone::text);
