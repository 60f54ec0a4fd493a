-- Comments on tables, their columns and types. Each upgrade sets them again.

COMMENT ON TABLE embedsidecar.installation IS 'One row: settings for all pipelines of this database.';
COMMENT ON COLUMN embedsidecar.installation.secret IS
    'Secret. Signs questions in the WAL, and derives the ids of traces.';
COMMENT ON COLUMN embedsidecar.installation.enabled IS
    'Main switch: false stops every lease. Changes are still queued.';

COMMENT ON TABLE embedsidecar.lsn_checkpoint IS 'One row per slot: all changes before lsn are in the queue or done.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.publication_oid IS
    'OID of the publication. Another OID means that the publication was recreated: changes may have been missed.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.epoch IS
    'Raised by each streamer that takes the slot; one with an older epoch cannot move the checkpoint.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.changes_unchanged IS
    'Changes that touched neither text nor vector, judged by the WAL alone. This and the next column are written once '
    'a minute and when a sidecar ends.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.changes_joined IS 'Changes of rows that had a task already.';
COMMENT ON COLUMN embedsidecar.lsn_checkpoint.hints_ignored IS
    'Hints with an invalid signature. Written once a minute.';

COMMENT ON TABLE embedsidecar.pipeline IS 'One source table, its text, one model and one destination.';
COMMENT ON COLUMN embedsidecar.pipeline.watched_columns IS
    'Columns other than the key that text and filter read; NULL: not known, every UPDATE counts as a change.';
COMMENT ON COLUMN embedsidecar.pipeline.generated_columns IS
    'Source columns of the table''s generated columns, when text and filter were last analysed.';
COMMENT ON COLUMN embedsidecar.pipeline.chunking IS
    'How texts are cut into chunks: strategy, tokens, overlap, context. Empty: not at all.';
COMMENT ON COLUMN embedsidecar.pipeline.fingerprint IS
    'Fingerprint of the model. A worker whose embedder has another one gets no lease.';
COMMENT ON COLUMN embedsidecar.pipeline.catalogue IS
    'State of the catalog when the pipeline last fit its table. A difference requests a scan.';
COMMENT ON COLUMN embedsidecar.pipeline.lease_epoch IS
    'Raised after a failover or a restore: leases of an older epoch are void, and nothing is written under them.';
COMMENT ON COLUMN embedsidecar.pipeline.column_numbers IS
    'Numbers of the columns of table_oid, by all names that they had when the pipeline was stored.';
COMMENT ON COLUMN embedsidecar.pipeline.functions IS
    'Names of the users'' functions that text, filter and context call.';
COMMENT ON COLUMN embedsidecar.pipeline.destination_oid IS
    'OID of the embedding table when the pipeline was stored. It finds the table after a rename.';
COMMENT ON COLUMN embedsidecar.pipeline.definition_version IS 'Raised by each change of the configuration.';
COMMENT ON COLUMN embedsidecar.pipeline.definitions IS
    'Digests of former definitions, each with the version at which it was last applied; at most 50.';
COMMENT ON COLUMN embedsidecar.pipeline.active_hours IS 'Hours in which it works, as configured; empty: always.';
COMMENT ON COLUMN embedsidecar.pipeline.active_minutes IS
    'active_hours in minutes of the week, from Monday 00:00 on. NULL: always; empty: only on request.';
COMMENT ON COLUMN embedsidecar.pipeline.active_zone IS 'Time zone of active_hours.';
COMMENT ON COLUMN embedsidecar.pipeline.open_until IS
    'It works outside of its hours until this time (resume with a period).';
COMMENT ON COLUMN embedsidecar.pipeline.adopting IS
    'embedsidecar adopt has begun and not ended: the pipeline stays paused until then, or until resume.';
COMMENT ON COLUMN embedsidecar.pipeline.beside IS
    'The pipeline whose other generation this is. No search reads it. NULL: it serves.';
COMMENT ON COLUMN embedsidecar.pipeline.served IS
    'True for the generation that serves and for the one before it; false for the next one.';
COMMENT ON COLUMN embedsidecar.pipeline.switches IS 'Number of switches to or from this generation.';
COMMENT ON COLUMN embedsidecar.pipeline.wish IS
    'The model that was requested by SQL, until a sidecar has made the next generation, with the last error.';
COMMENT ON COLUMN embedsidecar.pipeline.priority_expression IS
    'SQL over the row that returns the name of a lane. NULL: the column lane applies.';
COMMENT ON COLUMN embedsidecar.pipeline.origin IS 'The file that configures it; empty: unknown.';
COMMENT ON COLUMN embedsidecar.pipeline.ignore_expression IS
    'SQL over the text: an edit that does not change its value needs no new vector. NULL: every edit needs one.';
COMMENT ON COLUMN embedsidecar.pipeline.joins IS
    'Joined tables whose rows contribute to the text, with their entries in the catalog. NULL: none.';
COMMENT ON COLUMN embedsidecar.pipeline.joined_text IS 'SQL of the whole text of the row r, with joined tables.';
COMMENT ON COLUMN embedsidecar.pipeline.budget IS
    'Limits: tokens, money, tokens_per_day, money_per_day, and the time zone of the day. NULL: none.';
COMMENT ON COLUMN embedsidecar.pipeline.model_budget IS
    'Limits of all pipelines with its model together, in the same form. NULL: none.';
COMMENT ON COLUMN embedsidecar.pipeline.max_attempts IS
    'Failures of a row after which it is a dead letter. NULL: the sidecar''s setting.';
COMMENT ON COLUMN embedsidecar.pipeline.labels IS 'Labels by which users select it.';
COMMENT ON COLUMN embedsidecar.pipeline.batch IS 'Batch jobs: when, and from how many rows on (over). NULL: none.';
COMMENT ON COLUMN embedsidecar.pipeline.compared IS
    'Last comparison of a next generation with switch auto: overlap, least (required overlap), questions, at. NULL: '
    'not compared.';
COMMENT ON COLUMN embedsidecar.pipeline.set_up IS
    'Snapshot of the set-up. Vectors of rows that changed after it are not adopted.';
COMMENT ON COLUMN embedsidecar.pipeline.generation IS
    'Version of the definition: raised when texts may differ from those of the ledger. Not a generation of '
    'model_switch, which exchanges rows of this table.';

COMMENT ON TABLE embedsidecar.route IS
    'The definition of each pipeline that the streamer matches changes with. Without a row, or with another '
    'generation, changes may be missed, and the pipeline is not caught up.';
COMMENT ON COLUMN embedsidecar.route.generation IS 'Generation of the pipeline that the streamer has loaded.';
COMMENT ON COLUMN embedsidecar.route.definition IS
    'Digest of what can change the matching without a new generation: table, watched columns, destination column.';
COMMENT ON COLUMN embedsidecar.route.epoch IS 'Epoch of the slot under which the streamer wrote it.';

COMMENT ON TABLE embedsidecar.scan IS
    'Backfill and reconcile of a pipeline: compares every row with the ledger, then every ledger entry with the rows.';
COMMENT ON COLUMN embedsidecar.scan.requested IS
    'Raised by each request. A scan that ends with started < requested begins again.';
COMMENT ON COLUMN embedsidecar.scan.barrier IS
    'The scan starts when every transaction before this one has ended and is visible.';
COMMENT ON COLUMN embedsidecar.scan.after_key IS 'Last row_key done in the current phase.';
COMMENT ON COLUMN embedsidecar.scan.started_at IS 'When the current or last scan began.';
COMMENT ON COLUMN embedsidecar.scan.finished_at IS 'When a scan last ended; NULL: never, so this is the backfill.';
COMMENT ON COLUMN embedsidecar.scan.gap IS 'Changes may have been missed since the last comparison ended.';
COMMENT ON COLUMN embedsidecar.scan.partitions IS 'The partitions whose rows are compared; NULL: every row is.';
COMMENT ON COLUMN embedsidecar.scan.lost IS
    'Rows may have been removed: every ledger entry is compared with the rows, too.';
COMMENT ON COLUMN embedsidecar.scan.owners IS
    'Rows to compare, given by the number of a joined table and its join values. With partitions NULL: every row.';
COMMENT ON COLUMN embedsidecar.scan.asked IS 'The audit entry that requested the next scan; NULL: none.';

COMMENT ON TYPE embedsidecar.task_state IS 'Stored state of a task. A task is in progress while a live lease lists it.';

COMMENT ON TABLE embedsidecar.task IS
    'Rows to process: at most one task per pipeline and key. A task never holds text or a vector.';
COMMENT ON COLUMN embedsidecar.task.row_key IS
    'The key as PostgreSQL prints it; several columns are joined by | with \ and | escaped by \.';
COMMENT ON COLUMN embedsidecar.task.seq IS 'Position in its lane; a new one each time the task becomes due again.';
COMMENT ON COLUMN embedsidecar.task.gen IS
    'Raised by every change of the row. A worker that finishes an older one leaves the task open.';
COMMENT ON COLUMN embedsidecar.task.xid IS 'The last transaction that changed the row. No lease before it is visible.';
COMMENT ON COLUMN embedsidecar.task.first_lsn IS 'The oldest change that is not processed yet.';
COMMENT ON COLUMN embedsidecar.task.next_lsn IS
    'No later than the oldest change after the lease, if any. It becomes first_lsn if the task stays open.';
COMMENT ON COLUMN embedsidecar.task.losses IS
    'Leases in which the embedder died, or that were lost (at most 2 of these). From 2 on the row is tried alone; '
    'after 3 more it is a dead letter.';
COMMENT ON COLUMN embedsidecar.task.lost_leases IS
    'Leases lost in a row with their worker. After 20 the row is a dead letter.';
COMMENT ON COLUMN embedsidecar.task.pipeline_id IS
    'No foreign key: adding a task must not wait for updates of the pipeline. Tasks of a removed pipeline are deleted '
    'in portions.';
COMMENT ON COLUMN embedsidecar.task.next_committed_at IS 'Commit time of next_lsn.';
COMMENT ON COLUMN embedsidecar.task.waits_since IS
    'Start of the pause of a retry. A start in the future ends the pause: the clock was set back.';
COMMENT ON COLUMN embedsidecar.task.seen IS
    'Hashes of the watched columns at a skip hint. NULL: the row may need a new vector.';
COMMENT ON COLUMN embedsidecar.task.started_at IS
    'Start of the last attempt that left the task open; NULL: none. Written when the attempt ends.';
COMMENT ON COLUMN embedsidecar.task.finished_at IS 'End of that attempt.';
COMMENT ON COLUMN embedsidecar.task.due_at IS
    'When it is or was due, if it waits or has waited for a time; NULL: at once.';

COMMENT ON TABLE embedsidecar.lease IS
    'One row per batch in progress: its worker and its tasks. Deleted with the last of them.';
COMMENT ON COLUMN embedsidecar.lease.place IS 'Increasing number per pipeline: queries skip leases that have ended.';
COMMENT ON COLUMN embedsidecar.lease.token IS 'Chosen by the worker. It identifies the lease after a lost connection.';
COMMENT ON COLUMN embedsidecar.lease.epoch IS 'lease_epoch of the pipeline.';
COMMENT ON COLUMN embedsidecar.lease.timeline IS
    'Timeline of the server. A promoted standby has another one, and may lack what was read from the old server.';
COMMENT ON COLUMN embedsidecar.lease.started_at IS 'When it was taken.';

COMMENT ON TABLE embedsidecar.turn IS
    'Locked while tasks of a pipeline are leased, so that two workers never choose the same ones.';
COMMENT ON COLUMN embedsidecar.turn.passed IS
    'Up to these positions, lanes 0 to 3 have no task, and will never have one.';
COMMENT ON COLUMN embedsidecar.turn.passable IS 'All tasks up to this position are visible.';
COMMENT ON COLUMN embedsidecar.turn.top IS 'Highest position assigned when writers was recorded.';
COMMENT ON COLUMN embedsidecar.turn.writers IS
    'Transactions that may hold positions up to top and are not visible yet.';
COMMENT ON COLUMN embedsidecar.turn.live IS 'All leases up to this number have ended.';

COMMENT ON TABLE embedsidecar.ledger IS 'What was last written for each row. It makes changes without effect cheap.';
COMMENT ON COLUMN embedsidecar.ledger.source_hash IS
    '16 bytes per watched column: the start of the SHA-256 of its output text.';
COMMENT ON COLUMN embedsidecar.ledger.text_hash IS
    'SHA-256 of the text (with chunks: of settings, context and text); NULL: no text (empty, or excluded by the '
    'filter), so no vector.';
COMMENT ON COLUMN embedsidecar.ledger.vector_hash IS
    '8 bytes of the SHA-256 of the vector as little-endian float32 (with chunks: of their text hashes in order); '
    'eight zero bytes: no vector.';
COMMENT ON COLUMN embedsidecar.ledger.skipped IS
    'SHA-256 of a text that its writer marked as skip: the vector is of the text before, or missing. NULL: not '
    'marked.';
COMMENT ON COLUMN embedsidecar.ledger.norm_hash IS
    'SHA-256 of text_hash and the hash of ignore_expression and its value for that text. NULL: no such expression, or '
    'its value is NULL.';
COMMENT ON COLUMN embedsidecar.ledger.ignored IS 'The last edits were ignored (ignore_expression).';

COMMENT ON TABLE embedsidecar.history IS 'Finished attempts: one row each. prune_history has the limits.';
COMMENT ON COLUMN embedsidecar.history.took_ms IS
    'From lease to end of its batch, in milliseconds; NULL: written by an older program.';
COMMENT ON COLUMN embedsidecar.history.generation IS 'Generation of the pipeline that made the vector; NULL: unknown.';
COMMENT ON COLUMN embedsidecar.history.created_at IS 'When the task was created; NULL: there was none.';
COMMENT ON COLUMN embedsidecar.history.scheduled_at IS 'When it was due, if it waited for a time.';

COMMENT ON TABLE embedsidecar.worker IS
    'Sidecars of this database. One without a heartbeat is dead, and its leases expire.';
COMMENT ON COLUMN embedsidecar.worker.session_name IS
    'application_name of its sessions. Without such a session, the sidecar has crashed.';
COMMENT ON COLUMN embedsidecar.worker.stream IS
    'State of its stream: starting, streaming, standby, making (the slot), stuck or none.';
COMMENT ON COLUMN embedsidecar.worker.stream_detail IS 'Reason for the state of its stream.';
COMMENT ON COLUMN embedsidecar.worker.problems IS
    'Why it does not process a pipeline, by pipeline_id: code and detail.';
COMMENT ON COLUMN embedsidecar.worker.succeeded_24h IS
    'Rows that it finished in the last 24 hours; written with its heartbeat, once a minute.';
COMMENT ON COLUMN embedsidecar.worker.failed_24h IS 'Rows that became dead letters in that time.';
COMMENT ON COLUMN embedsidecar.worker.last_batch_at IS 'When its last batch ended; NULL: none has.';
COMMENT ON COLUMN embedsidecar.worker.role IS 'all, stream or work; empty: an older version, which does not report it.';
COMMENT ON COLUMN embedsidecar.worker.host IS 'Host name of its machine.';
COMMENT ON COLUMN embedsidecar.worker.speeds IS
    'Recent throughput by pipeline_id: rows, texts and calls per second, and milliseconds per call. Written every ten '
    'seconds while it works.';
COMMENT ON COLUMN embedsidecar.worker.quiet_until IS
    'It has disconnected from this idle database, and returns by then, or when something changes. NULL: connected.';

COMMENT ON TABLE embedsidecar.audit_log IS
    'Actions, by user and pipeline: the newest 100,000 entries of each role, for 400 days. An action in portions has '
    'one entry.';
COMMENT ON COLUMN embedsidecar.audit_log.said_by IS 'User name that the acting program reports. It is not verified.';
COMMENT ON COLUMN embedsidecar.audit_log.pipeline IS 'Name of the pipeline; NULL: all pipelines.';
COMMENT ON COLUMN embedsidecar.audit_log.finished_at IS 'When the last portion ended.';
COMMENT ON COLUMN embedsidecar.audit_log.place IS
    'Position in the queue when the action began: further portions skip later tasks.';
COMMENT ON COLUMN embedsidecar.audit_log.after_key IS 'Start of the next portion.';
COMMENT ON COLUMN embedsidecar.audit_log.told IS 'A sidecar has logged it in its current state.';
COMMENT ON COLUMN embedsidecar.audit_log.open IS 'A job in progress; result has its stage.';

COMMENT ON TABLE embedsidecar.answer IS
    'Vectors and scores of queries, for a minute or two. It holds no text. A crash of the server empties it.';
COMMENT ON COLUMN embedsidecar.answer.question IS 'SHA-256 of pipeline, role and text, and of the texts to be scored.';
COMMENT ON COLUMN embedsidecar.answer.vector IS
    'Vector of the pipeline''s model in pgvector''s input format; scores are an array of real.';
COMMENT ON COLUMN embedsidecar.answer.problem IS 'Why there is none.';
COMMENT ON COLUMN embedsidecar.answer.made_at IS 'When it was made. After a minute it is made again.';

COMMENT ON TYPE embedsidecar.found_row IS 'A row that search or neighbours found.';
COMMENT ON COLUMN embedsidecar.found_row.row_key IS 'Its key as in embedsidecar.tasks.';
COMMENT ON COLUMN embedsidecar.found_row.key IS 'Columns of the key with their values.';
COMMENT ON COLUMN embedsidecar.found_row.distance IS
    'Cosine distance, 0 to 2; for bits: how many differ; for sparse vectors: the negative inner product.';
COMMENT ON COLUMN embedsidecar.found_row.chunk_no IS 'Number of the nearest chunk, from 0.';
COMMENT ON COLUMN embedsidecar.found_row.chunk_text IS 'Text of that chunk, if it is stored.';

COMMENT ON TABLE embedsidecar.init_lock IS 'Locked while init runs: only one runs at a time.';

COMMENT ON TABLE embedsidecar.index_lock IS 'Locked while a sidecar builds an index: only one does at a time.';

COMMENT ON TABLE embedsidecar.spent IS 'Tokens and prices of pipelines; written once a minute and when a sidecar ends.';
COMMENT ON COLUMN embedsidecar.spent.texts_cut IS 'Texts that were cut at the model''s limit of tokens.';
COMMENT ON COLUMN embedsidecar.spent.search_tokens IS
    'Estimated tokens of searches: queries, and texts that rerankers scored. Those of rows are not included.';
COMMENT ON COLUMN embedsidecar.spent.search_price IS 'Price of search_tokens, by the models'' prices at that time.';

COMMENT ON TABLE embedsidecar.aside IS
    'Changes to enqueue when other sessions release the locks that are needed, in order of arrival.';
COMMENT ON COLUMN embedsidecar.aside.row_key IS 'NULL: every row of the pipeline is to be compared.';
COMMENT ON COLUMN embedsidecar.aside.xid IS 'Low half of its transaction id.';

COMMENT ON TABLE embedsidecar.configured IS
    'The configuration of each sidecar. The row of one that ended stays for ten minutes, or until the next one of its '
    'name: it tells what a sidecar set up and what a user did.';
COMMENT ON COLUMN embedsidecar.configured.session_name IS
    'application_name of its sessions. Without such a session, the sidecar has crashed.';
COMMENT ON COLUMN embedsidecar.configured.file IS 'File that it was read from; empty: none.';
COMMENT ON COLUMN embedsidecar.configured.loaded_at IS 'When it took effect.';
COMMENT ON COLUMN embedsidecar.configured.digests IS
    'Digests of its pipelines'' definitions by name, as in pipeline.definitions.';
COMMENT ON COLUMN embedsidecar.configured.problems IS
    'Why pipelines do not work as configured, by name: reason and hints.';
COMMENT ON COLUMN embedsidecar.configured.settings IS
    'Settings that differ from the default: name, value (without secrets) and origin.';
COMMENT ON COLUMN embedsidecar.configured.refused IS 'Why a later configuration was refused; empty: none was.';
COMMENT ON COLUMN embedsidecar.configured.restart IS 'Changed settings that take effect at the next start.';
COMMENT ON COLUMN embedsidecar.configured.takes_requests IS 'It processes requests for pipelines.';

COMMENT ON TABLE embedsidecar.measure IS
    'Activity of each pipeline, per minute for two hours and per ten minutes for seven days.';
COMMENT ON COLUMN embedsidecar.measure.pipeline_id IS '0: all pipelines together, including removed ones.';
COMMENT ON COLUMN embedsidecar.measure.minutes IS 'Period of the row in minutes: 1 or 10.';
COMMENT ON COLUMN embedsidecar.measure.place IS 'Number of the row in a ring of 128 (minutes) or 1,024 (ten minutes).';
COMMENT ON COLUMN embedsidecar.measure.rows_embedded IS 'Rows with a vector from the embedder.';
COMMENT ON COLUMN embedsidecar.measure.rows_reused IS 'Rows with a known vector.';
COMMENT ON COLUMN embedsidecar.measure.rows_failed IS 'Rows that became dead letters.';
COMMENT ON COLUMN embedsidecar.measure.price IS
    'Price of the tokens of rows and searches, by the models'' prices at that time; 0: no price.';
COMMENT ON COLUMN embedsidecar.measure.backlog IS
    'Largest number of waiting rows at the end of a minute, counted up to about a million per pipeline.';
COMMENT ON COLUMN embedsidecar.measure.freshness IS
    'Histogram of the time from commit to vector: the first bucket ends at 1 ms, each further one at the square root '
    'of two times the one before.';

COMMENT ON TABLE embedsidecar.request IS
    'Requests to create, change or drop pipelines. Each is processed by one sidecar, in order.';
COMMENT ON COLUMN embedsidecar.request.definition IS
    'For create: the whole definition, as in the file. For change: the changed keys; null removes one.';
COMMENT ON COLUMN embedsidecar.request.role_name IS 'Who requested it, and whose privileges count.';
COMMENT ON COLUMN embedsidecar.request.role_oid IS 'OID of that role: a new role of the same name has no right to it.';
COMMENT ON COLUMN embedsidecar.request.taken_by IS
    'application_name of the sidecar that processes it. Without such a session, another sidecar takes it.';
COMMENT ON COLUMN embedsidecar.request.tries IS 'How often it was begun; further tries within 30 seconds do not count.';
COMMENT ON COLUMN embedsidecar.request.dry_run IS 'Nothing is changed; plan has what would be.';
COMMENT ON COLUMN embedsidecar.request.plan IS 'For a dry run: the changes, in the form of embedsidecar plan.';
COMMENT ON COLUMN embedsidecar.request.audit_id IS 'Its audit entry; a dry run has none.';
COMMENT ON COLUMN embedsidecar.request.counted_at IS 'Start of the last counted try.';

COMMENT ON TABLE embedsidecar.declared IS
    'Pipelines that are configured here instead of in a file. Sidecars process them in addition to those of their '
    'files.';
COMMENT ON COLUMN embedsidecar.declared.request_id IS 'The request that last changed it.';

COMMENT ON TABLE embedsidecar.spending IS
    'Amount spent of each budget, from the first call after the budget was configured. The row stays when the budget '
    'or the pipeline is removed.';
COMMENT ON COLUMN embedsidecar.spending.kind IS 'Owner of the budget: pipeline or model.';
COMMENT ON COLUMN embedsidecar.spending.zone IS 'Time zone of the day.';
COMMENT ON COLUMN embedsidecar.spending.day IS 'Day of tokens_today and money_today.';

COMMENT ON TABLE embedsidecar.hold IS
    'Calls of embedders that budgets pay for and that are not counted yet. Calls of a killed sidecar are counted at '
    'their maximum.';
COMMENT ON COLUMN embedsidecar.hold.model IS 'Model whose budget pays; NULL: none. pipeline likewise.';
COMMENT ON COLUMN embedsidecar.hold.worker_id IS 'The sidecar; 0: another process.';
COMMENT ON COLUMN embedsidecar.hold.likely IS 'Estimated tokens of the call.';
COMMENT ON COLUMN embedsidecar.hold.most IS 'Upper bound of the tokens of the call.';
COMMENT ON COLUMN embedsidecar.hold.price IS 'Price of a million tokens; 0: none.';

COMMENT ON TABLE embedsidecar.history_turn IS
    'One row: the partition of history that is written. The eight partitions are used in turn.';
COMMENT ON COLUMN embedsidecar.history_turn.began_at IS 'Since when it is written.';
COMMENT ON COLUMN embedsidecar.history_turn.ended_at IS 'Time of the newest entry of partitions 0 to 7, or later.';

COMMENT ON TABLE embedsidecar.batch_job IS
    'Batch jobs of providers. Deleted when the tasks of all rows are done, or when the job was cancelled after its '
    'pipeline was removed.';
COMMENT ON COLUMN embedsidecar.batch_job.pipeline_id IS
    'No foreign key: a job must be cancelled when its pipeline is removed.';
COMMENT ON COLUMN embedsidecar.batch_job.nonce IS
    'Value that the provider stores with the job. It finds a job whose id was not recorded.';
COMMENT ON COLUMN embedsidecar.batch_job.state IS
    'gathering: a scan adds rows. closed: ready to submit. submitting: the provider may have it. running: it has. '
    'ended: its rows become tasks, which find the vectors here.';
COMMENT ON COLUMN embedsidecar.batch_job.rows IS 'Approximate number when gathered.';
COMMENT ON COLUMN embedsidecar.batch_job.tokens IS 'Estimated tokens of its texts; after its end: the actual number.';
COMMENT ON COLUMN embedsidecar.batch_job.price IS 'Price of a million tokens; 0: none.';
COMMENT ON COLUMN embedsidecar.batch_job.hold IS 'Amount held of budgets until its end.';
COMMENT ON COLUMN embedsidecar.batch_job.tries IS 'Consecutive failures of the last step.';
COMMENT ON COLUMN embedsidecar.batch_job.worker_id IS 'Sidecar that processes it; another one may take over.';
COMMENT ON COLUMN embedsidecar.batch_job.next_at IS 'When it is checked next.';

COMMENT ON TABLE embedsidecar.batch_item IS 'Rows of batch jobs. Deleted when their task is done.';
COMMENT ON COLUMN embedsidecar.batch_item.released IS 'Its task was created.';

COMMENT ON TABLE embedsidecar.batch_text IS
    'Hashes of the texts of batch jobs, and the provider''s vectors. It holds no text.';
COMMENT ON COLUMN embedsidecar.batch_text.vector IS
    'Little-endian float32 numbers; pairs for a sparse model. NULL: no vector.';

COMMENT ON TABLE embedsidecar.kept_ledger IS
    'Removed pipelines whose ledger stays for the next pipeline with the same destination column, while that column '
    'exists.';
