-- Locks in PostgreSQL, layout `fair`, version 8: tables that only the functions below touch.
--
-- {schema} stands for the quoted name of the schema, {kept} for UNLOGGED or nothing, {check} for the refusal of every isolation level but read
-- committed, and {secure} for a function that runs with the rights of its owner and finds nothing outside of the schema. Functions that are called
-- often have no path, whose setting costs as much as a statement: {client} refuses callers with another path than clients have. NOTES.md in this
-- folder gives the reasons for this, and for the order of locks.

-- No statement below resolves a name or an operator in a schema where another role may have planted one.
SET LOCAL search_path = pg_catalog, pg_temp;

-- An existing, empty schema asks for no right to make others.
DO $$ BEGIN
    IF to_regnamespace($name${schema}$name$) IS NULL THEN
        CREATE SCHEMA IF NOT EXISTS {schema};
    END IF;
END $$;

-- A single row. `mark` is of the memory that this was written in, see _mark(); before `quiet_until` nothing is granted, for at most
-- `quiet_for` from now: the clock may go back. `longest` is the longest ttl of a session.
CREATE TABLE {schema}.layout (
    version integer PRIMARY KEY, mark text, quiet_until timestamptz NOT NULL, quiet_for interval NOT NULL, longest interval NOT NULL
);
INSERT INTO {schema}.layout VALUES (8, NULL, 'epoch', '0', '0');

-- Rows that are locked, and hardly ever updated: nothing alive in a bucket has a number below `low`.
CREATE {kept} TABLE {schema}.bucket (bucket integer PRIMARY KEY, low bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO {schema}.bucket SELECT number, 0 FROM generate_series(0, 4095) AS number;

-- The functions check what they write, see _fits(): the server would parse constraints anew with each row. While a place of the name waits,
-- each granted one is `awaited`, and so is one that waited itself. Others leave without the bucket's lock.
CREATE {kept} TABLE {schema}.place (
    bucket integer NOT NULL,
    name text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    granted boolean NOT NULL,
    awaited boolean NOT NULL,
    weight bigint NOT NULL,
    capacity bigint NOT NULL,
    session bigint NOT NULL,
    client bigint NOT NULL,
    number bigint NOT NULL,
    since timestamptz NOT NULL,
    purpose text,
    PRIMARY KEY (bucket, name, seq)
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

CREATE {kept} TABLE {schema}.session (
    id bigint PRIMARY KEY,
    expires timestamptz NOT NULL,
    ttl interval NOT NULL CHECK (ttl > '0' AND ttl <= '36500 days'),
    epoch bigint NOT NULL,
    bell text NOT NULL CHECK (bell ~ '^fencelock_[0-9a-f]{16}$'),
    host text NOT NULL CHECK (octet_length(host) <= 512),
    pid bigint NOT NULL CHECK (pid >= 0 AND pid <= 4294967295),
    client bigint NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE {schema}.broken (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    session bigint NOT NULL,
    client bigint NOT NULL,
    number bigint NOT NULL,
    reason text NOT NULL,
    record text NOT NULL,
    at timestamptz NOT NULL,
    told boolean NOT NULL
);
CREATE INDEX ON {schema}.broken (name, id);
CREATE INDEX ON {schema}.broken (session) WHERE NOT told;

-- Notes outlive what they were written under, and a crash: they are logged wherever the places are not.
CREATE TABLE {schema}.note (
    name text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL CHECK (octet_length(value) <= 4096),
    token bigint NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    client bigint NOT NULL,
    written timestamptz NOT NULL,
    expires timestamptz
);
CREATE INDEX ON {schema}.note (expires) WHERE expires IS NOT NULL;

CREATE TABLE {schema}.fence (resource text COLLATE "C" PRIMARY KEY, token bigint NOT NULL);

CREATE SEQUENCE {schema}.number AS bigint MINVALUE 1;

CREATE FUNCTION {schema}.version() RETURNS integer LANGUAGE sql STABLE {secure} AS $$ SELECT version FROM layout $$;

-- Functions whose names begin with `_` are called by the others alone, and find things by the path that those have.

-- The first 12 bits of the name's SHA-256.
CREATE FUNCTION {schema}._home(p_name text) RETURNS integer LANGUAGE sql STABLE AS $$
    SELECT ('x' || left(encode(sha256(convert_to(p_name, 'UTF8')), 'hex'), 3))::bit(12)::integer
$$;

-- Another one after a failover, after a restored backup, and where a dump was read in: grants may be missing that their holders believe in.
CREATE FUNCTION {schema}._mark() RETURNS text LANGUAGE plpgsql STABLE
AS $$
DECLARE
    place_id oid := 'place'::regclass;
    cluster text;
    timeline text;
BEGIN
    BEGIN
        cluster := (SELECT system_identifier FROM pg_control_system());
    EXCEPTION WHEN OTHERS THEN
        -- EXECUTE was revoked, or the server is of a kind that lacks the function.
    END;
    BEGIN
        timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN OTHERS THEN
    END;
    IF cluster IS NULL OR timeline IS NULL THEN
        RAISE WARNING USING ERRCODE = 'FL005', MESSAGE = format('the owner of the locks'' functions (%s) cannot read %s: after each start of the server, no client is granted a lock until the longest ttl has passed',
            current_user, concat_ws(' and ', CASE WHEN cluster IS NULL THEN 'pg_control_system()' END, CASE WHEN timeline IS NULL THEN 'pg_walfile_name(pg_current_wal_lsn())' END));
        cluster := concat_ws(' ', cluster, extract(epoch FROM pg_postmaster_start_time()));
    END IF;
    RETURN concat_ws(' ', place_id, (SELECT oid FROM pg_database WHERE datname = current_database()), cluster, timeline);
END $$;

-- Grants no client a lock until each session that memory may lack has ended. Raises the numbers to the clock, in 1/128 ms.
CREATE FUNCTION {schema}._heed(p_ttl interval) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    clock bigint := floor(extract(epoch FROM clock_timestamp()) * 128000)::bigint;
    now_mark text := _mark();
    is_empty boolean;
BEGIN
    IF nextval('number') < clock THEN
        PERFORM 1 FROM layout FOR UPDATE;
        IF nextval('number') < clock THEN
            -- Further than can be drawn between the two statements.
            PERFORM setval('number', clock + 10000);
        END IF;
    END IF;
    IF (SELECT count(DISTINCT relpersistence) > 1 FROM pg_class WHERE oid IN ('bucket'::regclass, 'place'::regclass, 'session'::regclass)) THEN
        -- That some of them are empty after a crash would not be noticed.
        RAISE EXCEPTION USING ERRCODE = 'FL004', MESSAGE = 'the tables bucket, place and session are logged in part: ALTER TABLE ... SET makes them alike';
    END IF;
    IF EXISTS (SELECT FROM layout WHERE mark = now_mark AND longest >= p_ttl) AND EXISTS (SELECT FROM bucket WHERE bucket = 0) THEN
        RETURN;
    END IF;
    PERFORM 1 FROM layout FOR UPDATE;
    -- As unlogged tables are after a crash.
    is_empty := NOT EXISTS (SELECT FROM bucket WHERE bucket = 0);
    -- Where sessions are remembered, one that ended counts no longer. Leftovers of an earlier time count, too.
    UPDATE layout SET quiet_until = clock_timestamp() + n.quiet_for, quiet_for = n.quiet_for, longest = coalesce(n.ttl, '0') FROM (
            SELECT s.ttl, greatest(CASE WHEN is_empty THEN l.longest ELSE s.ttl END, p_ttl, least(l.quiet_until - clock_timestamp(), l.quiet_for)) AS quiet_for
            FROM layout AS l, (SELECT max(ttl) AS ttl FROM session) AS s) AS n
        WHERE mark <> now_mark OR is_empty;
    INSERT INTO bucket SELECT number, 0 FROM generate_series(0, 4095) AS number WHERE is_empty;
    UPDATE layout SET mark = now_mark, longest = greatest(longest, p_ttl);
END $$;

-- The mark of this server, heeded as open() does. With another server's mark it fails: a pooler may lead each transaction elsewhere.
CREATE FUNCTION {schema}.on_server(p_mark text) RETURNS text LANGUAGE plpgsql {secure} AS $$
BEGIN
    IF p_mark IS NULL THEN
        PERFORM _heed('0');
        RETURN _mark();
    ELSIF current_setting('fencelock.mark', true) IS DISTINCT FROM p_mark AND set_config('fencelock.mark', _mark(), false) <> p_mark THEN
        RAISE EXCEPTION USING ERRCODE = 'FL006', MESSAGE = 'the pooler leads to another server now';
    END IF;
    RETURN p_mark;
END $$;

-- Notifies the sessions of these granted places, which have one name, or a name each.
CREATE FUNCTION {schema}.notify(p_names text[], p_seqs bigint[]) RETURNS void LANGUAGE plpgsql {secure} AS $$
BEGIN
    PERFORM pg_notify(s.bell, 'n ' || p.name || chr(10) || 'g ' || lpad(to_hex(p.client), 16, '0') || '-' || to_hex(p.number) || ' ' || p.seq)
        FROM (SELECT coalesce(name, p_names[1]), seq FROM unnest(p_names, p_seqs) AS r (name, seq)) AS r (name, seq)
        JOIN place AS p ON p.bucket = _home(r.name) AND p.name = r.name AND p.seq = r.seq AND p.granted
        JOIN session AS s ON s.id = p.session;
END $$;

-- The same after a commit, unless a client began the transaction. A procedure that commits runs with the rights and the path of its caller.
CREATE PROCEDURE {schema}.ring(p_names text[], p_seqs bigint[]) LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.current_setting('fencelock.direct', true)::boolean THEN
        COMMIT;
        PERFORM pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.set_config('lock_timeout', '0', true);
    END IF;
    PERFORM {schema}.notify(p_names, p_seqs);
END $$;

-- Listens to a session's bell from now on. Clients that know it can ring it, and pg_stat_activity shows the text of a LISTEN.
CREATE FUNCTION {schema}.listen(p_bell text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('LISTEN %I', p_bell);
END $$;

-- The sessions whose death would let a waiter in: the first holders, and the first waiter.
CREATE FUNCTION {schema}._first(p_bucket integer, p_name text, p_low bigint) RETURNS TABLE (session bigint, granted boolean, weight bigint, capacity bigint)
LANGUAGE sql STABLE AS $$
    SELECT f.session, f.granted, f.weight, f.capacity FROM (
        SELECT p.session, p.granted, p.weight, p.capacity FROM {schema}.place AS p
        WHERE p.bucket = p_bucket AND p.name = p_name AND p.seq >= p_low ORDER BY p.seq LIMIT 64) AS f
    WHERE f.granted
    UNION ALL
    (SELECT p.session, p.granted, p.weight, p.capacity FROM {schema}.place AS p
        WHERE p.bucket = p_bucket AND p.name = p_name AND p.seq >= p_low AND NOT p.granted ORDER BY p.seq LIMIT 1)
$$;

-- Whether one of them is dead, when the next could be, whether one has longer to live than a ttl, and whether the first waiter is admitted.
CREATE FUNCTION {schema}._front(p_bucket integer, p_name text, p_low bigint, p_moment timestamptz)
RETURNS TABLE (is_dead boolean, boundary timestamptz, is_ahead boolean, has_room boolean) LANGUAGE sql STABLE AS $$
    SELECT bool_or(s.expires IS NULL OR s.expires <= p_moment), min(coalesce(s.expires, p_moment)), bool_or(s.expires > p_moment + s.ttl),
        -- Of more than 64 holders, _first() has 64.
        CASE WHEN count(*) FILTER (WHERE f.granted) < 64 THEN sum(f.weight) ELSE sum(f.weight) FILTER (WHERE NOT f.granted)
            + (SELECT sum(p.weight) FROM {schema}.place AS p WHERE p.bucket = p_bucket AND p.name = p_name AND p.seq >= p_low AND p.granted)
            END <= max(f.capacity) FILTER (WHERE NOT f.granted)
    FROM {schema}._first(p_bucket, p_name, p_low) AS f LEFT JOIN {schema}.session AS s ON s.id = f.session
$$;

-- The clock went back: its earlier lead keeps no client for longer than a ttl from when the row is locked.
CREATE FUNCTION {schema}._shorten(p_bucket integer, p_name text, p_low bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE {schema}.session SET expires = pg_catalog.clock_timestamp() + ttl WHERE expires > pg_catalog.clock_timestamp() + ttl AND id IN (
        SELECT s.id FROM {schema}.session AS s WHERE s.id IN (SELECT session FROM {schema}._first(p_bucket, p_name, p_low))
        FOR NO KEY UPDATE SKIP LOCKED)
$$;

-- In how many milliseconds the owner of the place `p_mine` looks again, as a session could be found dead then; -1 for never.
CREATE FUNCTION {schema}._again(p_bucket integer, p_name text, p_low bigint, p_mine bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    front record;
BEGIN
    SELECT f.boundary, f.is_ahead INTO front FROM {schema}._front(p_bucket, p_name, p_low, moment) AS f;
    IF front.is_ahead THEN
        PERFORM {schema}._shorten(p_bucket, p_name, p_low);
    END IF;
    front.boundary := least(front.boundary, (SELECT quiet_until FROM {schema}.layout WHERE quiet_until > moment));
    -- A transaction keeps a dead place that is still there. The first waiter looks often, and those behind it seldom.
    IF front.boundary <= moment THEN
        RETURN CASE WHEN EXISTS (SELECT FROM {schema}.place
            WHERE bucket = p_bucket AND name = p_name AND seq >= p_low AND seq < p_mine AND NOT granted) THEN 1000 ELSE 100 END;
    END IF;
    RETURN coalesce(greatest(100, ceil(extract(epoch FROM front.boundary - moment) * 1000)::bigint + 1), -1);
END $$;

-- Removes expired sessions, so that a renewal that waits finds nothing to renew. A session whose row is being written counts as living.
CREATE FUNCTION {schema}._bury(p_sessions bigint[]) RETURNS void LANGUAGE sql AS $$
    DELETE FROM {schema}.session WHERE id IN (
        SELECT id FROM {schema}.session WHERE id = ANY (p_sessions)
            AND expires <= pg_catalog.clock_timestamp() FOR UPDATE SKIP LOCKED)
$$;

-- Removes dead holders, grants what is admitted from the front on, and notifies those sessions: the numbers of the places. For a departure of
-- `p_session`, the caller notifies them: the index of the last element for places of that session in the answer of leave_unrung(), the next
-- index, those places as number, client and request each, and the numbers of the others. The bucket is locked. Rows that a transaction holds stay.
CREATE FUNCTION {schema}._settle(p_bucket integer, p_name text, p_low bigint, p_session bigint) RETURNS bigint[] LANGUAGE plpgsql
AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    used numeric := 0;
    is_dead boolean;
    from_seq bigint := p_low;
    waits record;
    own bigint[] := '{}';
    news bigint[] := '{}';
BEGIN
    FOR looked IN 1 .. 1000 LOOP
        SELECT p.seq, p.granted, p.weight, p.capacity, p.session, p.client, p.number, s.bell, s.expires,
                (SELECT quiet_until FROM {schema}.layout) > moment AS is_quiet INTO waits
            FROM {schema}.place AS p LEFT JOIN {schema}.session AS s ON s.id = p.session
            WHERE p.bucket = p_bucket AND p.name = p_name AND p.seq >= from_seq AND (looked = 1 OR NOT p.granted) ORDER BY p.seq LIMIT 1;
        -- If the first place waits, no place holds.
        CONTINUE WHEN waits.granted;
        IF looked = 2 AND from_seq = p_low THEN
            -- The holders are the first ones: places behind the first waiter are not looked at.
            from_seq := coalesce(waits.seq, 9223372036854775807);
            SELECT coalesce(sum(p.weight), 0), bool_or(s.expires IS NULL OR s.expires <= moment) INTO used, is_dead
                FROM {schema}.place AS p LEFT JOIN {schema}.session AS s ON s.id = p.session
                WHERE p.bucket = p_bucket AND p.name = p_name AND p.seq >= p_low AND p.seq < from_seq;
            IF is_dead THEN
                PERFORM {schema}._bury(ARRAY(SELECT session FROM {schema}.place
                    WHERE bucket = p_bucket AND name = p_name AND seq >= p_low AND seq < from_seq));
                WITH gone AS (DELETE FROM {schema}.place WHERE ctid = ANY (ARRAY(SELECT p.ctid FROM {schema}.place AS p
                    WHERE p.bucket = p_bucket AND p.name = p_name AND p.seq >= p_low AND p.seq < from_seq
                        AND NOT EXISTS (SELECT FROM {schema}.session AS s WHERE s.id = p.session)
                    LIMIT 1000 FOR UPDATE OF p SKIP LOCKED)) RETURNING weight)
                SELECT used - coalesce(sum(weight), 0) INTO used FROM gone;
            END IF;
        END IF;
        EXIT WHEN waits.seq IS NULL OR waits.is_quiet;
        IF waits.expires <= moment THEN
            PERFORM {schema}._bury(ARRAY[waits.session]);
            waits.bell := (SELECT bell FROM {schema}.session WHERE id = waits.session);
        END IF;
        IF waits.bell IS NULL THEN
            DELETE FROM {schema}.place WHERE bucket = p_bucket AND name = p_name AND seq = waits.seq;
        ELSIF used + waits.weight > waits.capacity THEN
            EXIT;
        ELSE
            UPDATE {schema}.place SET granted = true, since = moment, awaited = true WHERE bucket = p_bucket AND name = p_name AND seq = waits.seq;
            used := used + waits.weight;
            IF waits.session = p_session THEN
                own := own || ARRAY[waits.seq, waits.client, waits.number];
            ELSE
                news := news || waits.seq;
            END IF;
            EXIT WHEN used >= waits.capacity;
        END IF;
        from_seq := waits.seq + 1;
    END LOOP;
    IF p_session IS NULL AND news <> '{}' THEN
        PERFORM {schema}.notify(ARRAY[p_name], news);
    ELSIF own || news <> '{}' THEN
        RETURN ARRAY[3 + cardinality(own), 4 + cardinality(own)] || own || news;
    END IF;
    RETURN news;
END $$;

-- Opens a new session, or again when the answer was lost: its epoch.
CREATE FUNCTION {schema}.open(p_session bigint, p_bell text, p_ttl_ms bigint, p_host text, p_pid bigint, p_client bigint)
RETURNS bigint LANGUAGE plpgsql {secure} AS $$
DECLARE lives interval := p_ttl_ms * interval '1 millisecond';
BEGIN
    {check}
    PERFORM _heed(lives);
    INSERT INTO session VALUES (p_session, clock_timestamp() + lives, lives, 1, p_bell, p_host, p_pid, p_client)
        ON CONFLICT (id) DO UPDATE SET expires = clock_timestamp() + lives;
    RETURN 1;
END $$;

-- Resumes a session on another connection: the epoch from now on, 0 when the session has ended.
CREATE FUNCTION {schema}.resume(p_session bigint, p_ttl_ms bigint) RETURNS bigint LANGUAGE plpgsql {secure} AS $$
DECLARE
    lives interval := p_ttl_ms * interval '1 millisecond';
    now_epoch bigint;
BEGIN
    {check}
    PERFORM _heed(lives);
    UPDATE session SET expires = clock_timestamp() + lives, ttl = lives, epoch = epoch + 1
        WHERE id = p_session AND expires > clock_timestamp() RETURNING epoch INTO now_epoch;
    RETURN coalesce(now_epoch, 0);
END $$;

-- Places of a session whose requests are not among these.
CREATE FUNCTION {schema}.unknown(p_session bigint, p_numbers bigint[])
RETURNS TABLE (r_name text, r_client bigint, r_number bigint, r_seq bigint) LANGUAGE sql {secure} AS $$
    SELECT name, client, number, seq FROM place WHERE session = p_session AND number <> ALL (p_numbers)
$$;

-- Renews a session: which of its grants were broken, until it has confirmed that. A row of a number below 0: the session has ended.
CREATE FUNCTION {schema}.renew(p_session bigint, p_ttl_ms bigint, p_heard bigint[])
RETURNS TABLE (r_seq bigint, r_name text, r_client bigint, r_number bigint, r_reason text) LANGUAGE plpgsql {secure} AS $$
DECLARE lives interval := p_ttl_ms * interval '1 millisecond';
BEGIN
    {check}
    UPDATE session SET expires = clock_timestamp() + lives WHERE id = p_session AND expires > clock_timestamp();
    IF NOT FOUND THEN
        RETURN QUERY SELECT -1::bigint, ''::text, 0::bigint, 0::bigint, ''::text;
        RETURN;
    END IF;
    UPDATE broken SET told = true WHERE session = p_session AND NOT told AND seq = ANY (p_heard);
    RETURN QUERY SELECT seq, name, client, number, reason FROM broken WHERE session = p_session AND NOT told ORDER BY id LIMIT 1000;
END $$;

-- Whether this may stand in a place: there is no weight for what may not.
CREATE FUNCTION {schema}._fits(p_name text, p_weight bigint, p_capacity bigint, p_purpose text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT octet_length(p_name) BETWEEN 1 AND 512 AND p_weight BETWEEN 1 AND p_capacity AND p_capacity <= 4294967295
        AND octet_length(coalesce(p_purpose, '')) <= 512
$$;

-- Joins a queue at its tail. Answers: 0 granted (number) · 1 waiting (number, look in) · 2 busy · 3 conflict (weight, capacity) · 4 stale
-- (epoch) · 5 the session has ended · 6 to be sent again.
CREATE FUNCTION {schema}.enter(
    p_session bigint, p_epoch bigint, p_name text, p_client bigint, p_number bigint, p_weight bigint, p_capacity bigint,
    p_wait boolean, p_again boolean, p_purpose text
) RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    home integer;
    floor_seq bigint;
    moment pg_catalog.timestamptz;
    own pg_catalog.record;
    front pg_catalog.record;
    tail pg_catalog.record;
    drawn bigint;
    admitted boolean;
    is_written boolean := false;
BEGIN
    {client}
    home := {schema}._home(p_name);
    SELECT low INTO floor_seq FROM {schema}.bucket WHERE bucket = home FOR NO KEY UPDATE;
    IF random() < 0.004 THEN
        UPDATE {schema}.bucket SET low = coalesce((SELECT min(seq) FROM {schema}.place WHERE bucket = home), nextval($name${schema}.number$name$)) WHERE bucket = home;
    END IF;
    -- A name without places needs nothing else. Where the last request found places, this one does not try.
    IF current_setting('fencelock.taken', true) IS DISTINCT FROM 'on' THEN
        INSERT INTO {schema}.place SELECT home, p_name, nextval($name${schema}.number$name$), true, false, p_weight, p_capacity, s.id, p_client, p_number, clock_timestamp(), p_purpose
            FROM {schema}.session AS s, {schema}.layout AS l WHERE s.id = p_session AND s.expires > clock_timestamp() AND s.epoch <= p_epoch AND l.quiet_until <= clock_timestamp()
                AND {schema}._fits(p_name, p_weight, p_capacity, p_purpose)
                AND (SELECT seq FROM {schema}.place WHERE bucket = home AND name = p_name AND seq >= floor_seq LIMIT 1) IS NULL
            RETURNING seq INTO drawn;
        IF FOUND THEN
            RETURN ARRAY[0, drawn, 0];
        END IF;
    END IF;
    moment := clock_timestamp();
    -- Behind a place that has the whole capacity, the first two places are all whose death would let a waiter in.
    SELECT s.epoch, s.expires, l.quiet_until, f.boundary INTO own FROM {schema}.session AS s, {schema}.layout AS l, (
            SELECT min(CASE WHEN o.expires <= moment + o.ttl AND (two.weight = two.capacity OR NOT two.granted) THEN o.expires ELSE '-infinity' END) AS boundary
            FROM (SELECT p.session, p.granted, p.weight, p.capacity FROM {schema}.place AS p
                WHERE p.bucket = home AND p.name = p_name AND p.seq >= floor_seq ORDER BY p.seq LIMIT 2) AS two
            LEFT JOIN {schema}.session AS o ON o.id = two.session) AS f WHERE s.id = p_session;
    IF NOT FOUND OR own.expires <= moment THEN
        RETURN ARRAY[5, 0, 0];
    END IF;
    IF own.epoch > p_epoch THEN
        RETURN ARRAY[4, own.epoch, 0];
    END IF;
    admitted := own.quiet_until <= moment;
    IF p_again THEN
        SELECT seq, granted INTO tail FROM {schema}.place
            WHERE bucket = home AND name = p_name AND seq >= floor_seq AND client = p_client AND number = p_number AND session = p_session;
        IF FOUND THEN
            RETURN ARRAY[CASE WHEN tail.granted THEN 0 ELSE 1 END, tail.seq, {schema}._again(home, p_name, floor_seq, tail.seq)];
        END IF;
    END IF;
    SELECT seq, granted, awaited, weight, capacity INTO tail FROM {schema}.place
        WHERE bucket = home AND name = p_name AND seq >= floor_seq ORDER BY seq DESC LIMIT 1;
    PERFORM set_config('fencelock.taken', CASE WHEN FOUND THEN 'on' ELSE 'off' END, current_setting('fencelock.direct', true) IS DISTINCT FROM 'on');
    IF tail.seq IS NOT NULL THEN
        IF own.boundary <= moment OR tail.granted AND NOT tail.awaited THEN
            SELECT f.boundary, f.is_ahead INTO front FROM {schema}._front(home, p_name, floor_seq, moment) AS f;
            own.boundary := CASE WHEN NOT front.is_ahead THEN front.boundary END;
            IF front.boundary <= moment THEN
                is_written := {schema}._settle(home, p_name, floor_seq, NULL) <> '{}';
                SELECT seq, granted, awaited, weight, capacity INTO tail FROM {schema}.place
                    WHERE bucket = home AND name = p_name AND seq >= floor_seq ORDER BY seq DESC LIMIT 1;
            END IF;
        END IF;
        IF tail.seq IS NOT NULL AND tail.capacity <> p_capacity THEN
            -- Of the dead, none stands for a capacity.
            PERFORM {schema}._bury(ARRAY(SELECT DISTINCT session FROM {schema}.place WHERE bucket = home AND name = p_name AND seq >= floor_seq LIMIT 1000));
            DELETE FROM {schema}.place AS p WHERE p.bucket = home AND p.name = p_name AND p.seq >= floor_seq AND NOT p.granted
                AND NOT EXISTS (SELECT FROM {schema}.session AS s WHERE s.id = p.session);
            RETURN CASE WHEN FOUND THEN '{6,0,0}' ELSE ARRAY[3, tail.weight, tail.capacity] END;
        END IF;
        IF tail.seq IS NOT NULL AND admitted THEN
            admitted := tail.granted AND tail.weight + p_weight <= p_capacity
                AND p_weight + coalesce((SELECT sum(weight) FROM {schema}.place WHERE bucket = home AND name = p_name AND seq >= floor_seq), 0) <= p_capacity;
        END IF;
    END IF;
    IF NOT (admitted OR is_written) THEN
        -- Waiters that a crash removes ask again.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF NOT admitted AND NOT p_wait THEN
        RETURN ARRAY[2, 0, 0];
    END IF;
    -- A single awaited holder leaves with the bucket locked.
    IF NOT admitted AND tail.granted AND NOT (tail.awaited AND tail.weight = tail.capacity) THEN
        UPDATE {schema}.place SET awaited = true WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.place
            WHERE bucket = home AND name = p_name AND seq >= floor_seq AND NOT awaited FOR NO KEY UPDATE SKIP LOCKED));
        -- A holder may leave at this moment, or have left since the tail was read.
        IF (SELECT NOT bool_and(awaited) OR sum(weight) + p_weight <= p_capacity AND own.quiet_until <= moment FROM {schema}.place
            WHERE bucket = home AND name = p_name AND seq >= floor_seq) IS NOT FALSE THEN
            RETURN ARRAY[6, 0, 0];
        END IF;
    END IF;
    drawn := nextval($name${schema}.number$name$);
    INSERT INTO {schema}.place VALUES (home, p_name, drawn, admitted, false, CASE WHEN {schema}._fits(p_name, p_weight, p_capacity, p_purpose) THEN p_weight END, p_capacity,
        p_session, p_client, p_number, clock_timestamp(), p_purpose);
    IF admitted THEN
        RETURN ARRAY[0, drawn, 0];
    END IF;
    RETURN ARRAY[1, drawn, CASE WHEN own.boundary > moment AND own.quiet_until <= moment THEN greatest(100, ceil(extract(epoch FROM own.boundary - moment) * 1000)::bigint + 1)
        ELSE {schema}._again(home, p_name, floor_seq, drawn) END];
END $$;

-- Gives up a place, that with this number unless it is null: 0 it was not there · 1 it was · 2 a transaction holds it; and behind that what
-- _settle() answers. `p_patient` waits for such a transaction, unless the place was granted just now.
CREATE FUNCTION {schema}.leave_unrung(p_session bigint, p_name text, p_client bigint, p_number bigint, p_seq bigint, p_patient boolean)
RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    home integer;
    floor_seq bigint;
    is_awaited boolean;
    news bigint[];
    commits pg_catalog.text;
BEGIN
    {client}
    home := {schema}._home(p_name);
    -- No client waits for this to be on a disk; a session that finds a place again which it gave up, gives it up again.
    DELETE FROM {schema}.place WHERE ctid = (SELECT ctid FROM {schema}.place WHERE bucket = home AND name = p_name AND seq = p_seq AND granted
            AND client = p_client AND number = p_number AND session = p_session FOR UPDATE SKIP LOCKED)
        RETURNING awaited, CASE WHEN NOT awaited THEN set_config('synchronous_commit', 'off', true) END INTO is_awaited, commits;
    IF NOT is_awaited THEN
        RETURN '{1}';
    END IF;
    IF p_patient AND is_awaited IS NULL THEN
        -- The row before the bucket: a client that waits for a transaction that holds the row keeps no other waiting.
        PERFORM 1 FROM {schema}.place WHERE bucket = home AND name = p_name AND client = p_client AND number = p_number AND session = p_session AND granted
            AND seq BETWEEN coalesce(p_seq, (SELECT low FROM {schema}.bucket WHERE bucket = home)) AND coalesce(p_seq, 9223372036854775807) FOR UPDATE;
    END IF;
    SELECT low INTO floor_seq FROM {schema}.bucket WHERE bucket = home FOR NO KEY UPDATE;
    IF is_awaited IS NULL THEN
        DELETE FROM {schema}.place WHERE ctid = (
                SELECT ctid FROM {schema}.place WHERE bucket = home AND name = p_name AND client = p_client AND number = p_number AND session = p_session
                    AND seq BETWEEN coalesce(p_seq, floor_seq) AND coalesce(p_seq, 9223372036854775807) FOR UPDATE SKIP LOCKED)
            RETURNING awaited OR NOT granted INTO is_awaited;
        IF NOT FOUND THEN
            RETURN ARRAY(SELECT 2 * count(*) FROM {schema}.place WHERE bucket = home AND name = p_name AND client = p_client AND number = p_number
                AND session = p_session AND seq BETWEEN coalesce(p_seq, floor_seq) AND coalesce(p_seq, 9223372036854775807));
        END IF;
    END IF;
    IF is_awaited THEN
        news := {schema}._settle(home, p_name, floor_seq, p_session);
    END IF;
    IF news IS NULL OR news = '{}' THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN 1::bigint || news;
END $$;

-- Gives up a place, as above, and notifies the other sessions that were granted. `r_told` lists the granted places of this one.
CREATE PROCEDURE {schema}.leave(p_session bigint, p_name text, p_client bigint, p_number bigint, p_seq bigint, p_patient boolean,
    INOUT r_answer integer DEFAULT NULL, INOUT r_told bigint[] DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE answer bigint[] := {schema}.leave_unrung(p_session, p_name, p_client, p_number, p_seq, p_patient);
BEGIN
    r_answer := answer[1];
    r_told := answer[4:answer[2]];
    IF answer[answer[3]] IS NOT NULL THEN
        CALL {schema}.ring(ARRAY[p_name], answer[answer[3]:]);
    END IF;
END $$;

-- Replaces the claim of a grant by a lighter one, which lets others in: 0 it is not there · 1 done · 2 a transaction holds it.
CREATE FUNCTION {schema}.lighten(p_session bigint, p_name text, p_client bigint, p_number bigint, p_seq bigint, p_weight bigint)
RETURNS integer LANGUAGE plpgsql {secure} AS $$
DECLARE
    home integer := _home(p_name);
    floor_seq bigint;
BEGIN
    {check}
    SELECT low INTO floor_seq FROM bucket WHERE bucket = home FOR NO KEY UPDATE;
    UPDATE place SET weight = CASE WHEN p_weight > 0 THEN p_weight END WHERE ctid = (
        SELECT ctid FROM place WHERE bucket = home AND name = p_name AND seq = p_seq AND granted
            AND client = p_client AND number = p_number AND session = p_session AND weight >= p_weight FOR UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM place WHERE bucket = home AND name = p_name AND seq = p_seq AND granted
            AND client = p_client AND number = p_number AND session = p_session) THEN 2 ELSE 0 END;
    END IF;
    PERFORM _settle(home, p_name, floor_seq, NULL);
    RETURN 1;
END $$;

-- Several requests of a session in one transaction: three numbers for each in their order, granted places of this session as above, and the
-- places to notify. Kinds: 0 enter · 1 leave · 2 withdraw. Places whose numbers are known leave, then others enter, and then the rest leaves.
CREATE FUNCTION {schema}.batch_unrung(
    p_session bigint, p_epoch bigint, p_kinds bigint[], p_names text[], p_clients bigint[], p_numbers bigint[], p_seqs bigint[],
    p_weights bigint[], p_capacities bigint[], p_waits boolean[], p_agains boolean[], p_purposes text[]
) RETURNS TABLE (r_answers bigint[], r_told bigint[], r_names text[], r_seqs bigint[]) LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    count integer;
    homes integer[];
    commits pg_catalog.text;
    gone pg_catalog.tid[];
    drawn bigint[];
    one bigint[];
    now_epoch bigint;
    is_durable boolean := false;
BEGIN
    {client}
    count := cardinality(p_kinds);
    commits := current_setting('synchronous_commit');
    IF (count BETWEEN 1 AND 64 AND p_kinds <@ '{0,1,2}' AND array_position(p_names, NULL) IS NULL
        AND array_position(p_clients, NULL) IS NULL AND array_position(p_numbers, NULL) IS NULL
        AND format('[1:%s]', count) = ALL (ARRAY[array_dims(p_kinds), array_dims(p_names), array_dims(p_clients), array_dims(p_numbers),
            array_dims(p_seqs), array_dims(p_weights), array_dims(p_capacities), array_dims(p_waits), array_dims(p_agains),
            array_dims(p_purposes)])) IS NOT TRUE
    THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a batch has 1 to 64 requests, and each of its lists an element for each of them';
    END IF;
    homes := ARRAY(SELECT {schema}._home(name) FROM unnest(p_names) AS name);
    PERFORM 1 FROM {schema}.bucket WHERE bucket = ANY (homes) ORDER BY bucket FOR NO KEY UPDATE;
    -- Where the last request found places, few requests are cheaper one by one.
    IF count > 8 OR current_setting('fencelock.taken', true) IS DISTINCT FROM 'on' THEN
        gone := ARRAY(SELECT (SELECT p.ctid FROM {schema}.place AS p WHERE r.kind = 1 AND p.bucket = r.home AND p.name = r.name AND p.seq = r.seq
                    AND array_position(p_seqs, r.seq) = r.at AND p.granted AND NOT p.awaited AND p.client = r.client AND p.number = r.number
                    AND p.session = p_session FOR UPDATE SKIP LOCKED)
            FROM unnest(p_kinds, homes, p_names, p_clients, p_numbers, p_seqs) WITH ORDINALITY AS r (kind, home, name, client, number, seq, at));
        DELETE FROM {schema}.place WHERE ctid = ANY (gone);
        IF 0 = ANY (p_kinds) AND EXISTS (SELECT FROM {schema}.session AS s, {schema}.layout AS l WHERE s.id = p_session AND s.expires > clock_timestamp()
            AND s.epoch <= p_epoch AND l.quiet_until <= clock_timestamp())
        THEN
            -- The first of a name, where it has no places.
            drawn := ARRAY(SELECT CASE WHEN r.kind = 0 AND array_position(p_names, r.name) = r.at AND {schema}._fits(r.name, r.weight, r.capacity, r.purpose)
                        AND (SELECT p.seq FROM {schema}.place AS p WHERE p.bucket = r.home AND p.name = r.name
                            AND p.seq >= (SELECT low FROM {schema}.bucket WHERE bucket = r.home) LIMIT 1) IS NULL
                    THEN nextval($name${schema}.number$name$) END
                FROM unnest(p_kinds, homes, p_names, p_weights, p_capacities, p_purposes) WITH ORDINALITY
                    AS r (kind, home, name, weight, capacity, purpose, at));
            INSERT INTO {schema}.place SELECT r.home, r.name, r.seq, true, false, r.weight, r.capacity, p_session, r.client, r.number, clock_timestamp(), r.purpose
                FROM unnest(homes, p_names, drawn, p_weights, p_capacities, p_clients, p_numbers, p_purposes)
                    AS r (home, name, seq, weight, capacity, client, number, purpose) WHERE r.seq IS NOT NULL;
            is_durable := FOUND;
        END IF;
    END IF;
    r_answers := array_fill(0::bigint, ARRAY[3 * count]);
    FOR turn IN 0 .. 2 LOOP
        FOR at IN 1 .. count LOOP
            CONTINUE WHEN turn <> CASE WHEN p_kinds[at] = 0 THEN 1 WHEN p_kinds[at] = 1 AND p_seqs[at] IS NOT NULL THEN 0 ELSE 2 END;
            IF gone[at] IS NOT NULL OR drawn[at] IS NOT NULL THEN
                r_answers[3 * at - 2 : 3 * at - 1] := ARRAY[p_kinds[at], coalesce(drawn[at], 0)];
                CONTINUE;
            END IF;
            PERFORM set_config('synchronous_commit', commits, true);
            IF turn = 1 THEN
                r_answers[3 * at - 2 : 3 * at] := {schema}.enter(p_session, p_epoch, p_names[at], p_clients[at], p_numbers[at], p_weights[at],
                    p_capacities[at], p_waits[at], p_agains[at], p_purposes[at]);
                is_durable := is_durable OR current_setting('synchronous_commit') <> 'off';
                CONTINUE;
            END IF;
            IF p_kinds[at] = 2 THEN
                -- A request that had the bucket locked is done, and its place is found. A later one is refused.
                UPDATE {schema}.session SET epoch = epoch + 1 WHERE id = p_session RETURNING epoch INTO now_epoch;
                r_answers[3 * at - 1] := coalesce(now_epoch, 0);
            END IF;
            one := {schema}.leave_unrung(p_session, p_names[at], p_clients[at], p_numbers[at], p_seqs[at], false);
            r_answers[3 * at - 2] := one[1];
            r_told := r_told || nullif(one[4:one[2]], '{}');
            one := nullif(one[one[3]:], '{}');
            r_names := r_names || array_fill(p_names[at], ARRAY[coalesce(cardinality(one), 0)]);
            r_seqs := r_seqs || one;
        END LOOP;
    END LOOP;
    IF random() < 0.004 * count THEN
        UPDATE {schema}.bucket AS b SET low = coalesce((SELECT min(seq) FROM {schema}.place AS p WHERE p.bucket = b.bucket), nextval($name${schema}.number$name$))
            WHERE bucket = homes[ceil(random() * count)::integer];
    END IF;
    PERFORM set_config('synchronous_commit', CASE WHEN is_durable OR r_told IS NOT NULL OR r_seqs IS NOT NULL THEN commits ELSE 'off' END, true);
    RETURN NEXT;
END $$;

CREATE PROCEDURE {schema}.batch(
    p_session bigint, p_epoch bigint, p_kinds bigint[], p_names text[], p_clients bigint[], p_numbers bigint[], p_seqs bigint[],
    p_weights bigint[], p_capacities bigint[], p_waits boolean[], p_agains boolean[], p_purposes text[], INOUT r_answers bigint[] DEFAULT NULL, INOUT r_told bigint[] DEFAULT NULL
) LANGUAGE plpgsql AS $$
DECLARE granted record;
BEGIN
    SELECT * INTO granted FROM {schema}.batch_unrung(
        p_session, p_epoch, p_kinds, p_names, p_clients, p_numbers, p_seqs, p_weights, p_capacities, p_waits, p_agains, p_purposes);
    r_answers := granted.r_answers;
    r_told := granted.r_told;
    IF granted.r_seqs IS NOT NULL THEN
        CALL {schema}.ring(granted.r_names, granted.r_seqs);
    END IF;
END $$;

-- How places of a session stand: for each name, when to look again, and of each of its places 0 granted, 1 waiting, 2 missing. No row: the
-- session has ended.
CREATE FUNCTION {schema}.look(p_session bigint, p_names text[], p_counts integer[], p_clients bigint[], p_numbers bigint[], p_seqs bigint[])
RETURNS TABLE (r_look_in bigint, r_stands integer[]) LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    home integer;
    floor_seq bigint;
    at integer := 0;
    upto integer;
    moment pg_catalog.timestamptz;
    named pg_catalog.text;
BEGIN
    {client}
    IF NOT EXISTS (SELECT FROM {schema}.session WHERE id = p_session AND expires > clock_timestamp()) THEN
        RETURN;
    END IF;
    FOR which IN 1 .. cardinality(p_names) LOOP
        named := p_names[which];
        home := {schema}._home(named);
        SELECT low INTO floor_seq FROM {schema}.bucket WHERE bucket = home;
        moment := clock_timestamp();
        -- Buckets of several names are locked in any order, so none is waited for.
        IF (SELECT is_dead OR has_room FROM {schema}._front(home, named, floor_seq, moment)) IS TRUE
            AND EXISTS (SELECT FROM {schema}.bucket WHERE bucket = home FOR NO KEY UPDATE SKIP LOCKED)
        THEN
            PERFORM {schema}._settle(home, named, floor_seq, NULL);
        END IF;
        r_look_in := {schema}._again(home, named, floor_seq, (SELECT min(seq) FROM unnest(p_seqs[at + 1 : at + p_counts[which]]) AS seq));
        upto := at + p_counts[which];
        r_stands := ARRAY(SELECT coalesce((SELECT CASE WHEN granted THEN 0 ELSE 1 END FROM {schema}.place WHERE bucket = home AND name = named
                AND seq = a.seq AND client = a.client AND number = a.number AND session = p_session), 2)
            FROM unnest(p_seqs[at + 1 : upto], p_clients[at + 1 : upto], p_numbers[at + 1 : upto]) AS a (seq, client, number));
        at := upto;
        RETURN NEXT;
    END LOOP;
END $$;

-- The process of the server whose transaction keeps a row, from the row's xmax, in words; NULL where no transaction does.
CREATE FUNCTION {schema}._keeper(p_xmax xid) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE holders xid[] := ARRAY[p_xmax];
BEGIN
    BEGIN
        holders := ARRAY(SELECT xid FROM pg_get_multixact_members(p_xmax)) || holders;
    EXCEPTION WHEN OTHERS THEN
    END;
    RETURN (SELECT coalesce('the prepared transaction ' || x.gid, format('%s (process %s of the server%s)', a.application_name, l.pid,
            ', ' || a.state || ' since ' || to_char(a.state_change AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
        FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid LEFT JOIN pg_prepared_xacts AS x ON x.transaction = l.transactionid
        WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = ANY (holders) ORDER BY l.pid LIMIT 1);
END $$;

-- A queue, front first: places of living sessions, and grants of dead ones whose rows a transaction keeps.
CREATE FUNCTION {schema}._queue(p_bucket integer, p_name text)
RETURNS TABLE (
    seq bigint, client bigint, number bigint, granted boolean, weight bigint, capacity bigint, since timestamptz, purpose text,
    host text, pid bigint, owner bigint, keeper text
) LANGUAGE sql AS $$
    SELECT q.* FROM (
        SELECT p.seq, p.client, p.number, p.granted, p.weight, p.capacity, p.since, p.purpose, s.host, s.pid, s.client AS owner,
                CASE WHEN s.id IS NULL AND p.granted THEN {schema}._keeper(p.xmax) END AS keeper
            FROM {schema}.place AS p LEFT JOIN {schema}.session AS s ON s.id = p.session AND s.expires > pg_catalog.clock_timestamp()
            WHERE p.bucket = p_bucket AND p.name = p_name AND p.seq >= (SELECT low FROM {schema}.bucket AS b WHERE b.bucket = p_bucket)) AS q
    WHERE q.owner IS NOT NULL OR q.keeper IS NOT NULL ORDER BY q.seq
$$;

-- A queue in short: how many are in it, how many of them hold, and where these stand, 0 for nowhere. And why no client is granted a lock now.
CREATE FUNCTION {schema}.contention(p_name text, p_clients bigint[], p_numbers bigint[])
RETURNS TABLE (r_counts bigint[], r_closed text) LANGUAGE sql {secure} AS $$
    WITH q AS MATERIALIZED (SELECT client, number, granted, row_number() OVER (ORDER BY seq) AS position FROM _queue(_home(p_name), p_name))
    SELECT ARRAY[count(*), count(*) FILTER (WHERE granted)] || ARRAY(
            SELECT coalesce(q.position, 0) FROM unnest(p_clients, p_numbers) WITH ORDINALITY AS asked (client, number, ordinality)
            LEFT JOIN q ON q.client = asked.client AND q.number = asked.number ORDER BY asked.ordinality),
        (SELECT format('no client is granted a lock until %s, because this server may not know all locks that were granted before: it was promoted or restored, or a crash emptied its unlogged tables',
            to_char(quiet_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) FROM layout WHERE quiet_until > clock_timestamp())
        FROM q
$$;

-- Which of these names a place waits for, by their numbers in the list.
CREATE FUNCTION {schema}.waited_for(p_names text[]) RETURNS SETOF bigint LANGUAGE sql {secure} AS $$
    SELECT n.i FROM unnest(p_names) WITH ORDINALITY AS n (name, i)
    WHERE EXISTS (SELECT FROM place AS p WHERE p.bucket = _home(n.name) AND p.name = n.name AND NOT p.granted)
$$;

-- Part of a queue: up to p_limit after the first p_skip.
CREATE FUNCTION {schema}.show(p_name text, p_skip bigint, p_limit bigint)
RETURNS TABLE (
    r_seq bigint, r_client bigint, r_number bigint, r_granted boolean, r_weight bigint, r_capacity bigint, r_since_us bigint,
    r_purpose text, r_host text, r_pid bigint, r_owner bigint, r_keeper text
) LANGUAGE sql {secure} AS $$
    SELECT seq, client, number, granted, weight, capacity, floor(extract(epoch FROM since) * 1000000)::bigint, purpose, host, pid, owner, keeper
    FROM _queue(_home(p_name), p_name) OFFSET p_skip LIMIT p_limit
$$;

-- The names of up to p_limit places behind this one, in the order of the buckets, and whether anything is there that a queue shows.
CREATE FUNCTION {schema}.names(p_bucket integer, p_name text, p_limit integer)
RETURNS TABLE (r_bucket integer, r_name text, r_alive boolean) LANGUAGE sql {secure} AS $$
    SELECT few.bucket, few.name, bool_or(CASE WHEN s.expires > clock_timestamp() THEN true ELSE few.granted AND _keeper(few.xmax) IS NOT NULL END)
    FROM (SELECT *, place.xmax FROM place WHERE (bucket, name) > (p_bucket, p_name COLLATE "C") ORDER BY bucket, name, seq LIMIT p_limit) AS few
    LEFT JOIN session AS s ON s.id = few.session
    GROUP BY few.bucket, few.name ORDER BY few.bucket, few.name
$$;

-- Breaks exactly this grant, and keeps the record: whether it was there or is broken already. Waits for a transaction that holds it.
CREATE FUNCTION {schema}.break(
    p_name text, p_client bigint, p_number bigint, p_seq bigint, p_record text, p_reason text
) RETURNS boolean LANGUAGE plpgsql {secure} AS $$
DECLARE
    home integer := _home(p_name);
    floor_seq bigint;
    whose bigint;
BEGIN
    {check}
    -- A constraint of a table would send the row to the caller, with the number of the session.
    IF (p_reason ~ '[[:cntrl:]]' OR octet_length(p_reason) > 512 OR octet_length(p_record) > 65535) IS NOT FALSE THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a reason is one line of at most 512 bytes, and a record has at most 65535';
    END IF;
    IF EXISTS (SELECT FROM broken WHERE name = p_name AND seq = p_seq AND record = p_record) THEN
        RETURN true;
    END IF;
    DELETE FROM place WHERE bucket = home AND name = p_name AND seq = p_seq AND granted AND client = p_client AND number = p_number
        RETURNING session INTO whose;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO broken (name, seq, session, client, number, reason, record, at, told)
        VALUES (p_name, p_seq, whose, p_client, p_number, p_reason, p_record, clock_timestamp(), false);
    DELETE FROM broken WHERE name = p_name AND at < clock_timestamp() - interval '30 days';
    SELECT low INTO floor_seq FROM bucket WHERE bucket = home FOR NO KEY UPDATE;
    PERFORM _settle(home, p_name, floor_seq, NULL);
    PERFORM pg_notify(bell, 'n ' || p_name || chr(10) || 'b ' || lpad(to_hex(p_client), 16, '0') || '-' || to_hex(p_number) || ' ' || p_seq || ' ' || p_reason)
        FROM session WHERE id = whose;
    RETURN true;
END $$;

-- The records of broken grants, oldest first.
CREATE FUNCTION {schema}.breaks(p_name text) RETURNS SETOF text LANGUAGE sql {secure} AS $$
    SELECT record FROM broken WHERE name = p_name ORDER BY id
$$;

-- Writes the note on a lock, or deletes it where there is no value, if this grant is current: whether it is. The grant outlasts the commit.
CREATE FUNCTION {schema}.write_note(p_name text, p_client bigint, p_number bigint, p_seq bigint, p_value bytea, p_ttl_ms bigint)
RETURNS boolean LANGUAGE plpgsql {secure} AS $$
DECLARE
    whose bigint;
    moment timestamptz;
    writer record;
BEGIN
    {check}
    SELECT session INTO whose FROM place WHERE bucket = _home(p_name) AND name = p_name AND seq = p_seq AND granted
        AND client = p_client AND number = p_number FOR KEY SHARE;
    -- After the lock, which may have been waited for.
    moment := clock_timestamp();
    SELECT host, pid, client INTO writer FROM session WHERE id = whose AND expires > moment;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_value IS NULL THEN
        DELETE FROM note WHERE name = p_name;
        RETURN true;
    END IF;
    INSERT INTO note AS n VALUES (
            p_name, p_value, p_seq, writer.host, writer.pid, writer.client, moment, moment + p_ttl_ms * interval '1 millisecond')
        ON CONFLICT (name) DO UPDATE SET value = excluded.value, token = excluded.token, host = excluded.host, pid = excluded.pid,
            client = excluded.client, written = excluded.written, expires = excluded.expires;
    RETURN true;
END $$;

-- The note on a lock, unless the note has expired, and the time. Always one row; without a note all but the time is null.
CREATE FUNCTION {schema}.read_note(p_name text)
RETURNS TABLE (
    r_now_us bigint, r_value bytea, r_token bigint, r_host text, r_pid bigint, r_client bigint, r_written_us bigint, r_expires_us bigint
) LANGUAGE plpgsql STABLE {secure} AS $$
DECLARE moment timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY SELECT floor(extract(epoch FROM moment) * 1000000)::bigint, n.value, n.token, n.host, n.pid, n.client,
            floor(extract(epoch FROM n.written) * 1000000)::bigint, floor(extract(epoch FROM n.expires) * 1000000)::bigint
        FROM (VALUES (1)) AS one LEFT JOIN note AS n ON n.name = p_name AND (n.expires IS NULL OR n.expires > moment);
END $$;

-- Ends a session. Places left in its queues are dead from now on.
CREATE FUNCTION {schema}.close(p_session bigint) RETURNS void LANGUAGE plpgsql {secure} AS $$
BEGIN
    {check}
    DELETE FROM session WHERE id = p_session;
END $$;

-- Clears away the leftovers of the dead in some buckets, expired notes, and old records: where to continue. The call waits for no lock.
CREATE FUNCTION {schema}.clear_up(p_from integer) RETURNS integer LANGUAGE plpgsql {secure} AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    upto integer := least(p_from + 256, 4096);
    left_over record;
    floor_seq bigint;
BEGIN
    {check}
    PERFORM set_config('synchronous_commit', 'off', true);
    IF p_from = 0 THEN
        -- Once a round: these walk over all sessions, and over every row of them that a transaction elsewhere keeps from being vacuumed.
        UPDATE session SET expires = clock_timestamp() + ttl WHERE id IN (
            SELECT id FROM session WHERE expires > clock_timestamp() + ttl LIMIT 1000 FOR UPDATE SKIP LOCKED);
        UPDATE layout SET quiet_until = clock_timestamp() + quiet_for WHERE quiet_until > clock_timestamp() + quiet_for;
        DELETE FROM session WHERE id IN (SELECT id FROM session WHERE expires <= moment LIMIT 1000 FOR UPDATE SKIP LOCKED);
        DELETE FROM broken WHERE id IN (SELECT id FROM broken WHERE at < moment - interval '30 days' LIMIT 1000 FOR UPDATE SKIP LOCKED);
    END IF;
    DELETE FROM note WHERE name = ANY (ARRAY(
        SELECT name FROM note WHERE expires <= moment ORDER BY expires LIMIT 1000 FOR UPDATE SKIP LOCKED));
    PERFORM _bury(ARRAY(SELECT DISTINCT p.session FROM place AS p JOIN session AS s ON s.id = p.session
        WHERE p.bucket >= p_from AND p.bucket < upto AND s.expires <= moment LIMIT 1000));
    FOR left_over IN SELECT DISTINCT p.bucket, p.name FROM place AS p LEFT JOIN session AS s ON s.id = p.session
        WHERE p.bucket >= p_from AND p.bucket < upto AND s.id IS NULL ORDER BY p.bucket, p.name LIMIT 100
    LOOP
        SELECT low INTO floor_seq FROM bucket WHERE bucket = left_over.bucket FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM place AS p WHERE p.bucket = left_over.bucket AND p.name = left_over.name AND p.seq >= floor_seq AND NOT p.granted
            AND NOT EXISTS (SELECT FROM session AS s WHERE s.id = p.session);
        IF _settle(left_over.bucket, left_over.name, floor_seq, NULL) <> '{}' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        upto := left_over.bucket + 1;
    END LOOP;
    RETURN upto % 4096;
END $$;

-- For users' own transactions -----------------------------------------------------------------------------------------------------------

-- Fails unless this grant is current, and keeps it from ending until the transaction does: a release, an expiry and a break wait. The token
-- is that of the guard, as a number. The server ends a transaction that is idle for p_limit, by default for a minute; '0' is no limit.
CREATE FUNCTION {schema}.hold(p_name text, p_token bigint, p_limit interval DEFAULT NULL) RETURNS void LANGUAGE plpgsql {secure} AS $$
DECLARE whose bigint;
BEGIN
    -- A limit that is set already stays.
    IF p_limit IS NOT NULL OR current_setting('idle_in_transaction_session_timeout') = '0' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', coalesce(ceil(extract(epoch FROM p_limit) * 1000)::bigint::text, '60000'), true);
    END IF;
    SELECT session INTO whose FROM place WHERE bucket = _home(p_name) AND name = p_name AND seq = p_token AND granted FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'FL001', MESSAGE = format('the lock %s is not held under the token %s', p_name, p_token),
            HINT = 'It was released, broken or lost, or, above READ COMMITTED, it was granted after the first statement of this transaction.';
    END IF;
    -- Above read committed, the row of the session is as old as the snapshot. The grant is kept either way.
    IF current_setting('transaction_isolation') = 'read committed'
        AND NOT EXISTS (SELECT FROM session WHERE id = whose AND expires > clock_timestamp()) THEN
        RAISE EXCEPTION USING ERRCODE = 'FL001', MESSAGE = format('the session that held the lock %s is over', p_name);
    END IF;
END $$;

-- Refuses a token that is lower than one that was seen for this resource, and remembers the highest.
CREATE FUNCTION {schema}.fence(p_resource text, p_token bigint) RETURNS void LANGUAGE plpgsql {secure} AS $$
BEGIN
    INSERT INTO fence AS f VALUES (p_resource, p_token) ON CONFLICT (resource) DO UPDATE SET token = p_token WHERE f.token <= p_token;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'FL002', MESSAGE = format('the token %s for %s is older than one that was seen', p_token, p_resource);
    END IF;
END $$;

-- A trigger for tables that keep the token of the last write in a column, whose name is the trigger's argument: BEFORE UPDATE, FOR EACH ROW.
CREATE FUNCTION {schema}.fenced() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before bigint;
    after bigint;
BEGIN
    IF jsonb_exists(to_jsonb(NEW), TG_ARGV[0]) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = '42703', MESSAGE = format('the trigger %I: the table %I has no column %s', TG_NAME, TG_TABLE_NAME,
            coalesce(quote_ident(TG_ARGV[0]), 'to compare')), HINT = 'The argument of the trigger is the column with the token of the last write.';
    END IF;
    before := (to_jsonb(OLD) ->> TG_ARGV[0])::bigint;
    after := (to_jsonb(NEW) ->> TG_ARGV[0])::bigint;
    IF before IS NOT NULL AND (after IS NULL OR after < before) THEN
        RAISE EXCEPTION USING ERRCODE = 'FL002', MESSAGE = format('the token %s is older than %s, by which the row was written', coalesce(after::text, 'null'), before);
    END IF;
    RETURN NEW;
END $$;

-- A lock that ends with the transaction, and excludes its own kind alone. Above read committed, the snapshot would be older than the lock.
CREATE FUNCTION {schema}.in_transaction(p_name text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    {check}
    IF p_name IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'a lock has a name';
    END IF;
    PERFORM pg_advisory_xact_lock(('x' || substr(encode(sha256(convert_to('fencelock ' || p_name, 'UTF8')), 'hex'), 1, 16))::bit(64)::bigint);
END $$;

REVOKE ALL ON ALL ROUTINES IN SCHEMA {schema} FROM PUBLIC;

-- The defaults of the database may give rights to others. Such rights are withdrawn here: a reader of the tables sees the sessions, and a
-- role that creates something here could have it called with the rights of the owner.
DO $$
DECLARE
    ours regnamespace := $name${schema}$name$;
    other record;
BEGIN
    FOR other IN SELECT DISTINCT a.grantee FROM (
            SELECT relowner, relacl FROM pg_class WHERE relnamespace = ours
            UNION ALL SELECT proowner, proacl FROM pg_proc WHERE pronamespace = ours
            UNION ALL SELECT nspowner, nspacl FROM pg_namespace WHERE oid = ours
        ) AS made (owner, acl), aclexplode(made.acl) AS a WHERE a.grantee NOT IN (made.owner, current_user::regrole)
    LOOP
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %1$s FROM %2$s; REVOKE ALL ON ALL SEQUENCES IN SCHEMA %1$s FROM %2$s; '
            'REVOKE ALL ON ALL ROUTINES IN SCHEMA %1$s FROM %2$s; REVOKE CREATE ON SCHEMA %1$s FROM %2$s',
            ours, CASE other.grantee WHEN 0 THEN 'PUBLIC' ELSE other.grantee::regrole::text END);
    END LOOP;
END $$;
