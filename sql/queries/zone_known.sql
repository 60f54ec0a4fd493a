-- zone_known: whether the server knows a time zone by this name. Other values that AT TIME ZONE accepts, such as GMT+2,
-- mean the opposite of what they say.
-- Rows: one. Locks: none.
SELECT EXISTS (SELECT FROM pg_timezone_names() AS z WHERE z.name = @zone::text);
