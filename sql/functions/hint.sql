-- Hints of a writer about the changes of its own transaction. Docs: docs/sql.md, section "Hints". A hint is a signed
-- transactional logical message in the slot: it commits with the transaction, and is undone with a savepoint. Nothing
-- is stored.
CREATE OR REPLACE FUNCTION embedsidecar.hint(word text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    told text;
    body bytea;
BEGIN
    IF hint.word IS NULL OR hint.word NOT IN ('urgent', 'low', 'skip') THEN
        RAISE EXCEPTION 'hint: expected urgent, low or skip, not %',
            coalesce(quote_literal(left(hint.word, 40)), 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                HINT = 'urgent and low say how soon the changes of this transaction are embedded; skip keeps the '
                'vectors of the rows that it changes from here on';
    END IF;
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'hint: this server is a standby, where nothing can be changed'
            USING ERRCODE = 'read_only_sql_transaction',
                HINT = 'give the hint in the transaction that changes the rows';
    END IF;
    -- A trigger may call this for each row. The setting ends with the transaction, or the savepoint.
    told := pg_current_xact_id()::text || hint.word;
    IF current_setting('embedsidecar.hinted', true) IS DISTINCT FROM told THEN
        body := int8send(pg_current_xact_id()::text::bigint) || convert_to(left(hint.word, 1), 'UTF8');
        PERFORM pg_logical_emit_message(true, 'embedsidecar.hint',
            '\x01'::bytea || embedsidecar.sign('embedsidecar.hint', body) || body);
        PERFORM set_config('embedsidecar.hinted', told, true);
    END IF;
END $$;
COMMENT ON FUNCTION embedsidecar.hint IS
    'Sets how the changes of this transaction are embedded: urgent or low applies to all of them; skip applies to '
    'those that follow: their rows keep their vectors until they change again or are re-queued. Callers need EXECUTE.';
