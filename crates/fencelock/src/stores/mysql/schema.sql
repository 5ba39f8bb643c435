-- Locks in MariaDB and MySQL, layout `fair`, version 6: tables that only the procedures below touch.
--
-- Statements end with a line of two slashes. setup.rs fills in the braces: `us` is the server's time, `begin` checks the session and begins a
-- transaction, `commit` ends it and wakes the sessions of `v_rung` (the session in `v_epoch` withdraws, which becomes its epoch), `one` fails unless
-- the last statement wrote one row. A read or a write that KILL QUERY ended may report success, hence `interrupted`. NOTES.md has the order of locks.

-- Procedures keep the settings that they are made with.
SET @fencelock_mode = @@SESSION.sql_mode
//
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'
//

-- A single row. `mark` is of the memory that this was written in, see fencelock__heed(); before `quiet_until` nothing is granted, for at
-- most `quiet_for` from now: the clock may go back. `longest` is the longest ttl of a session. Times are in microseconds.
CREATE TABLE IF NOT EXISTS fencelock_layout (
    one TINYINT NOT NULL PRIMARY KEY, version INT NOT NULL, mark VARBINARY(512), quiet_until BIGINT NOT NULL, quiet_for BIGINT NOT NULL, longest BIGINT NOT NULL
) ENGINE = InnoDB
//
INSERT INTO fencelock_layout VALUES (1, 6, NULL, 0, 0, 0) ON DUPLICATE KEY UPDATE version = 6
//

-- The row that all changes of a bucket's queues lock first, but for releases. `last` is the last number that was drawn there: order and token in one.
CREATE TABLE IF NOT EXISTS fencelock_bucket (b SMALLINT NOT NULL PRIMARY KEY, last BIGINT NOT NULL) ENGINE = InnoDB
//
INSERT IGNORE INTO fencelock_bucket WITH d AS (SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
    UNION ALL SELECT 6 UNION ALL SELECT 7) SELECT w.d * 512 + x.d * 64 + y.d * 8 + z.d, 0 FROM d AS w, d AS x, d AS y, d AS z
//

-- A name that is held or waited for. No living place has a number below `head`, so reads step over no row that is not purged yet. Unless it is
-- `shared`, the name has had one place only since the row was made.
CREATE TABLE IF NOT EXISTS fencelock_queue (
    b SMALLINT NOT NULL, name VARBINARY(512) NOT NULL, head BIGINT NOT NULL, shared BOOLEAN NOT NULL, PRIMARY KEY (b, name)
) ENGINE = InnoDB
//

CREATE TABLE IF NOT EXISTS fencelock_place (
    b SMALLINT NOT NULL, name VARBINARY(512) NOT NULL, seq BIGINT NOT NULL, granted BOOLEAN NOT NULL, weight BIGINT NOT NULL,
    capacity BIGINT NOT NULL, session BIGINT UNSIGNED NOT NULL, client BIGINT UNSIGNED NOT NULL, number BIGINT UNSIGNED NOT NULL,
    since BIGINT NOT NULL, purpose VARBINARY(512), PRIMARY KEY (b, name, seq)
) ENGINE = InnoDB
//

-- `rung` counts the rings of the bell: a ring that comes before its listener sleeps is seen by it.
CREATE TABLE IF NOT EXISTS fencelock_session (
    id BIGINT UNSIGNED NOT NULL PRIMARY KEY, expires BIGINT NOT NULL, ttl BIGINT NOT NULL, epoch BIGINT NOT NULL, bell VARBINARY(64) NOT NULL,
    rung BIGINT NOT NULL, host VARBINARY(512) NOT NULL, pid BIGINT UNSIGNED NOT NULL, client BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB
//

CREATE TABLE IF NOT EXISTS fencelock_broken (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARBINARY(512) NOT NULL, seq BIGINT NOT NULL, session BIGINT UNSIGNED NOT NULL,
    client BIGINT UNSIGNED NOT NULL, number BIGINT UNSIGNED NOT NULL, reason VARBINARY(512) NOT NULL, record BLOB NOT NULL, at BIGINT NOT NULL,
    told BOOLEAN NOT NULL, KEY (name, id), KEY (session, told)
) ENGINE = InnoDB
//

-- `expires` is NULL for a note that stays until it is deleted.
CREATE TABLE IF NOT EXISTS fencelock_note (
    name VARBINARY(512) NOT NULL PRIMARY KEY, value VARBINARY(4096) NOT NULL, token BIGINT NOT NULL, host VARBINARY(512) NOT NULL,
    pid BIGINT UNSIGNED NOT NULL, client BIGINT UNSIGNED NOT NULL, written BIGINT NOT NULL, expires BIGINT, KEY (expires)
) ENGINE = InnoDB
//

CREATE TABLE IF NOT EXISTS fencelock_fenced (resource VARBINARY(512) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB
//

-- Procedures whose names begin with fencelock__ are called by the others alone, with the bucket locked, unless they say otherwise.

-- Where tables may lack sessions (a replica took over, a dump was read in), nothing is granted until those have ended. Locks no bucket.
CREATE PROCEDURE fencelock__heed(p_ttl BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_mark, v_known VARBINARY(512);
    DECLARE v_longest, v_quiet_until, v_quiet_for BIGINT;
    DECLARE v_made DATETIME;
    SELECT create_time INTO v_made FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'fencelock_place';
    SET v_mark = LEFT(CONCAT_WS(' ', @@global.server_id, @@global.hostname, @@global.port, v_made), 512);
    IF v_made IS NULL {interrupted}
    SELECT mark, longest INTO v_known, v_longest FROM fencelock_layout WHERE one = 1;
    IF NOT (v_known <=> v_mark) OR v_longest < p_ttl THEN
        SELECT mark, longest, quiet_until, quiet_for INTO v_known, v_longest, v_quiet_until, v_quiet_for
            FROM fencelock_layout WHERE one = 1 FOR UPDATE;
        -- Another session may have written it meanwhile.
        IF NOT (v_known <=> v_mark) OR v_longest < p_ttl THEN
            IF v_known <> v_mark THEN
                -- A session that ended counts no longer. Leftovers of an earlier time count too: a session forgotten then may live as long.
                SELECT COALESCE(MAX(ttl), 0) INTO v_longest FROM fencelock_session;
                SET v_quiet_for = GREATEST(v_longest, p_ttl, LEAST(v_quiet_until - {us}, v_quiet_for));
                SET v_quiet_until = {us} + v_quiet_for;
            END IF;
            UPDATE fencelock_layout SET mark = v_mark, longest = GREATEST(v_longest, p_ttl), quiet_until = v_quiet_until, quiet_for = v_quiet_for WHERE one = 1;
            {one}
        END IF;
    END IF;
END
//

-- The first waiter, when the first session ends whose death lets a waiter in, and in how many milliseconds the owner of the place `p_mine`
-- looks again. `o_alone`: a holder leaves no room. Locks nothing. The head is the first place, or a departure is on its way.
CREATE PROCEDURE fencelock__front(
    p_b SMALLINT, p_name VARBINARY(512), p_head BIGINT, p_mine BIGINT, p_quiet_until BIGINT,
    OUT o_first BIGINT, OUT o_boundary BIGINT, OUT o_alone BOOLEAN, OUT o_weight BIGINT, OUT o_capacity BIGINT, OUT o_look_in BIGINT
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_waits, v_ends BIGINT;
    DECLARE v_now BIGINT DEFAULT {us};
    SET o_first = NULL, o_alone = FALSE;
    SELECT IF(p.granted, NULL, p.seq), COALESCE(s.expires, 0), p.granted AND p.weight = p.capacity, p.weight, p.capacity
        INTO o_first, o_boundary, o_alone, o_weight, o_capacity
        FROM fencelock_place AS p LEFT JOIN fencelock_session AS s ON s.id = p.session WHERE p.b = p_b AND p.name = p_name AND p.seq = p_head;
    IF o_alone THEN
        SELECT MIN(seq) INTO o_first FROM fencelock_place WHERE b = p_b AND name = p_name AND seq > p_head;
        SELECT COALESCE(s.expires, 0) INTO v_waits FROM fencelock_place AS p LEFT JOIN fencelock_session AS s ON s.id = p.session
            WHERE p.b = p_b AND p.name = p_name AND p.seq = o_first;
    ELSEIF o_first IS NULL THEN
        SELECT p.seq, COALESCE(s.expires, 0) INTO o_first, v_waits FROM fencelock_place AS p LEFT JOIN fencelock_session AS s ON s.id = p.session
            WHERE p.b = p_b AND p.name = p_name AND p.seq > p_head AND NOT p.granted ORDER BY p.seq LIMIT 1;
        SELECT MIN(COALESCE(s.expires, 0)) INTO o_boundary FROM (
            SELECT session FROM fencelock_place WHERE b = p_b AND name = p_name AND seq >= p_head AND seq < COALESCE(o_first, 9223372036854775807)
            ORDER BY seq LIMIT 64) AS f LEFT JOIN fencelock_session AS s ON s.id = f.session;
    END IF;
    SET o_boundary = LEAST(COALESCE(o_boundary, v_waits), COALESCE(v_waits, o_boundary));
    SET v_ends = IF(p_quiet_until > v_now, LEAST(COALESCE(o_boundary, p_quiet_until), p_quiet_until), o_boundary);
    -- A transaction holds a dead place that is still there: the first waiter looks often, those behind it less.
    SET o_look_in = CASE WHEN v_ends > v_now THEN GREATEST(100, CEIL((v_ends - v_now) / 1000) + 1) WHEN COALESCE(o_first, p_mine) >= p_mine THEN 100 ELSE 1000 END;
END
//

-- Removes dead places with numbers from p_from up to p_before, a thousand at most: how many. Places that a transaction holds stay. Deletes
-- expired sessions, so that a renewal that waits finds nothing to renew. A session whose row is being written counts as living.
CREATE PROCEDURE fencelock__clear(p_b SMALLINT, p_name VARBINARY(512), p_from BIGINT, p_before BIGINT, OUT o_count INT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_seq, v_taken, v_expires BIGINT;
    DECLARE v_session BIGINT UNSIGNED;
    DECLARE v_dead, v_looked INT DEFAULT 0;
    SET o_count = 0;
    walk: WHILE v_looked < 1000 DO
        SET v_seq = NULL, v_taken = NULL, v_expires = NULL, v_looked = v_looked + 1;
        SELECT p.seq, p.session, s.id IS NULL INTO v_seq, v_session, v_dead FROM fencelock_place AS p LEFT JOIN fencelock_session AS s ON s.id = p.session
            WHERE p.b = p_b AND p.name = p_name AND p.seq >= p_from AND p.seq < p_before AND COALESCE(s.expires, 0) <= {us} ORDER BY p.seq LIMIT 1;
        IF v_seq IS NULL THEN
            LEAVE walk;
        END IF;
        SET p_from = v_seq + 1;
        SELECT seq INTO v_taken FROM fencelock_place WHERE b = p_b AND name = p_name AND seq = v_seq FOR UPDATE SKIP LOCKED;
        IF v_taken IS NOT NULL AND NOT v_dead THEN
            SELECT expires INTO v_expires FROM fencelock_session WHERE id = v_session FOR UPDATE SKIP LOCKED;
            IF v_expires <= {us} THEN
                DELETE FROM fencelock_session WHERE id = v_session;
                {one}
                SET v_dead = TRUE;
            END IF;
        END IF;
        IF v_taken IS NOT NULL AND v_dead THEN
            DELETE FROM fencelock_place WHERE b = p_b AND name = p_name AND seq = v_seq;
            {one}
            SET o_count = o_count + 1;
        END IF;
    END WHILE;
END
//

-- Locks the bucket, removes dead holders, grants what is admitted from the front on, moves the head, and deletes an empty queue. Rows that a transaction holds
-- stay. Grants to the session `p_me`, which reads the answer, are added to `io_granted`, and other sessions to `io_rung`.
CREATE PROCEDURE fencelock__settle(p_b SMALLINT, p_name VARBINARY(512), p_me BIGINT UNSIGNED, INOUT io_rung LONGBLOB, INOUT io_granted LONGBLOB)
SQL SECURITY DEFINER
BEGIN
    DECLARE v_head, v_front, v_from, v_seq, v_weight, v_capacity, v_expires, v_waiting BIGINT;
    DECLARE v_session, v_client, v_number BIGINT UNSIGNED;
    DECLARE v_used DECIMAL(40);
    DECLARE v_looked, v_cleared, v_removed, v_dead INT DEFAULT 0;
    DECLARE v_now BIGINT DEFAULT {us};
    SELECT COALESCE(MAX(q.head), 0) INTO v_head FROM fencelock_bucket AS k LEFT JOIN fencelock_queue AS q ON q.b = k.b AND q.name = p_name WHERE k.b = p_b FOR UPDATE;
    IF v_head IS NULL {interrupted}
    SELECT COALESCE(MIN(seq), 0) INTO v_front FROM fencelock_place WHERE b = p_b AND name = p_name AND seq >= v_head;
    IF v_front IS NULL {interrupted}
    SET v_from = v_front;
    waiters: WHILE v_front > 0 AND v_looked < 1000 DO
        SET v_seq = NULL, v_dead = FALSE, v_looked = v_looked + 1;
        SELECT p.seq, p.weight, p.capacity, p.session, p.client, p.number, s.expires
            INTO v_seq, v_weight, v_capacity, v_session, v_client, v_number, v_expires
            FROM fencelock_layout AS l JOIN fencelock_place AS p LEFT JOIN fencelock_session AS s ON s.id = p.session
            WHERE l.one = 1 AND l.quiet_until <= v_now AND p.b = p_b AND p.name = p_name AND p.seq >= v_from AND NOT p.granted ORDER BY p.seq LIMIT 1;
        IF v_used IS NULL AND v_front <=> v_seq THEN
            SET v_used = 0;
        ELSEIF v_used IS NULL THEN
            CALL fencelock__clear(p_b, p_name, v_front, COALESCE(v_seq, 9223372036854775807), v_removed);
        END IF;
        IF v_seq IS NULL THEN
            SELECT COUNT(*) INTO v_waiting FROM fencelock_layout AS l JOIN fencelock_place AS p
                WHERE l.one = 1 AND l.quiet_until <= v_now AND p.b = p_b AND p.name = p_name AND p.seq >= v_from AND NOT p.granted;
            IF COALESCE(v_waiting, 1) > 0 {interrupted}
            LEAVE waiters;
        ELSEIF v_used IS NULL THEN
            SELECT COALESCE(SUM(weight), 0) INTO v_used FROM fencelock_place WHERE b = p_b AND name = p_name AND seq >= v_head AND seq < v_seq;
            IF v_used IS NULL {interrupted}
        END IF;
        SET v_from = v_seq + 1;
        IF COALESCE(v_expires, 0) <= v_now THEN
            CALL fencelock__clear(p_b, p_name, v_seq, v_from, v_dead);
        END IF;
        IF v_dead THEN
            SET v_cleared = v_cleared + 1;
        ELSEIF v_used + v_weight > v_capacity THEN
            LEAVE waiters;
        ELSE
            UPDATE fencelock_place SET granted = TRUE, since = v_now WHERE b = p_b AND name = p_name AND seq = v_seq;
            {one}
            IF v_session = p_me THEN
                SET io_granted = CONCAT(COALESCE(io_granted, ''), v_client, '-', v_number, '-', v_seq, ',');
            ELSE
                SET io_rung = CONCAT(COALESCE(io_rung, ''), v_session, ',');
            END IF;
            SET v_used = v_used + v_weight;
            IF v_used >= v_capacity THEN
                LEAVE waiters;
            END IF;
        END IF;
    END WHILE;
    IF COALESCE(v_cleared + v_removed, 1) > 0 THEN
        SET v_front = NULL;
        SELECT COALESCE(MIN(seq), 0) INTO v_front FROM fencelock_place WHERE b = p_b AND name = p_name AND seq >= v_head;
        IF v_front IS NULL {interrupted}
    END IF;
    IF v_front = 0 AND v_head > 0 THEN
        DELETE FROM fencelock_queue WHERE b = p_b AND name = p_name;
        {one}
    ELSEIF v_front > v_head AND v_head > 0 THEN
        UPDATE fencelock_queue SET head = v_front WHERE b = p_b AND name = p_name;
        {one}
    END IF;
END
//

-- Counts the bells of these sessions ('id,id,') up, and the epoch of the session `io_me`, which becomes the epoch. This locks the sessions in the order of their
-- numbers, last of all, so that transactions do not deadlock there.
CREATE PROCEDURE fencelock__count(p_rung LONGBLOB, INOUT io_me BIGINT UNSIGNED) SQL SECURITY DEFINER
BEGIN
    DECLARE v_before, v_epoch BIGINT;
    DECLARE v_first VARBINARY(20) DEFAULT SUBSTRING_INDEX(p_rung, ',', 1);
    IF io_me IS NULL AND p_rung = CONCAT(v_first, ',') THEN
        UPDATE fencelock_session SET rung = rung + 1 WHERE id = CAST(v_first AS UNSIGNED);
    ELSE
        SELECT COALESCE(MAX(epoch), 0) INTO v_before FROM fencelock_session WHERE id = io_me;
        UPDATE (SELECT DISTINCT id FROM JSON_TABLE(CONVERT(CONCAT('[', p_rung, COALESCE(io_me, 0), ']') USING utf8mb4), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$')) AS j
            ORDER BY id LIMIT 100000) AS r STRAIGHT_JOIN fencelock_session AS s FORCE INDEX (PRIMARY) ON s.id = r.id
            SET s.rung = s.rung + 1, s.epoch = s.epoch + (s.id <=> io_me);
        SELECT COALESCE(MAX(epoch), 0) INTO v_epoch FROM fencelock_session WHERE id = io_me;
        IF NOT COALESCE(v_epoch > v_before OR v_epoch = 0, FALSE) {interrupted}
        SET io_me = v_epoch;
    END IF;
END
//

-- Wakes the listening connections of these sessions: KILL QUERY ends their sleep. After the commit, in no transaction.
CREATE PROCEDURE fencelock__ring(p_rung LONGBLOB) SQL SECURITY DEFINER
BEGIN
    DECLARE v_session, v_bell VARBINARY(64);
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
    WHILE p_rung <> '' DO
        SET v_session = SUBSTRING_INDEX(p_rung, ',', 1), v_bell = NULL;
        SET p_rung = SUBSTRING(p_rung, LENGTH(v_session) + 2);
        SELECT bell INTO v_bell FROM fencelock_session WHERE id = CAST(v_session AS UNSIGNED);
        KILL QUERY IS_USED_LOCK(v_bell);
    END WHILE;
END
//

-- Opens a new session, or again when the answer was lost: its epoch.
CREATE PROCEDURE fencelock_open(
    p_session BIGINT UNSIGNED, p_bell VARBINARY(64), p_ttl BIGINT, p_host VARBINARY(512), p_pid BIGINT UNSIGNED, p_client BIGINT UNSIGNED
) SQL SECURITY DEFINER
BEGIN
    IF NOT COALESCE({bell} AND p_ttl BETWEEN 1 AND 3153600000000000 AND NOT ISNULL(p_session) AND NOT ISNULL(p_host) AND NOT ISNULL(p_pid) AND NOT ISNULL(p_client), FALSE) {refused}
    {begin}
        CALL fencelock__heed(p_ttl);
        INSERT INTO fencelock_session VALUES (p_session, {us} + p_ttl, p_ttl, 1, p_bell, 0, p_host, p_pid, p_client)
            ON DUPLICATE KEY UPDATE expires = {us} + p_ttl;
        COMMIT;
    END;
    SELECT 1;
END
//

-- Resumes a session on another connection: the epoch from now on, 0 when the session has ended.
CREATE PROCEDURE fencelock_resume(p_session BIGINT UNSIGNED, p_ttl BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_expires, v_epoch BIGINT;
    IF NOT COALESCE(p_ttl BETWEEN 1 AND 3153600000000000, FALSE) {refused}
    {begin}
        CALL fencelock__heed(p_ttl);
        SELECT COALESCE(MAX(expires), 0), MAX(epoch) + 1 INTO v_expires, v_epoch FROM fencelock_session WHERE id = p_session FOR UPDATE;
        IF v_expires IS NULL {interrupted}
        IF v_expires > {us} THEN
            UPDATE fencelock_session SET expires = {us} + p_ttl, ttl = p_ttl, epoch = v_epoch WHERE id = p_session;
            {one}
        ELSE
            SET v_epoch = 0;
        END IF;
        COMMIT;
    END;
    SELECT v_epoch;
END
//

-- Places of a session whose requests are not among these numbers, behind a row without a name.
CREATE PROCEDURE fencelock_unknown(p_session BIGINT UNSIGNED, p_numbers LONGTEXT) SQL SECURITY DEFINER READS SQL DATA
BEGIN
    SELECT '' AS name, CAST(0 AS UNSIGNED) AS client, CAST(0 AS UNSIGNED) AS number, CAST(0 AS SIGNED) AS seq
    UNION ALL
    SELECT name, client, number, seq FROM fencelock_place WHERE session = p_session AND NOT FIND_IN_SET(number, p_numbers);
END
//

-- Renews a session, and lists its broken grants until they are in `p_heard`. The first number is 0, and below 0 when the session has ended.
CREATE PROCEDURE fencelock_renew(p_session BIGINT UNSIGNED, p_ttl BIGINT, p_heard LONGTEXT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_expires BIGINT;
    DECLARE v_lives BOOLEAN;
    IF NOT COALESCE(p_ttl BETWEEN 1 AND 3153600000000000 AND p_heard IS NOT NULL, FALSE) {refused}
    {begin}
        SELECT COALESCE(MAX(expires), 0) INTO v_expires FROM fencelock_session WHERE id = p_session FOR UPDATE;
        IF v_expires IS NULL {interrupted}
        -- By the present clock: the call may have waited for the row.
        SET v_lives = v_expires > {us};
        IF v_lives THEN
            UPDATE fencelock_session SET expires = {us} + p_ttl WHERE id = p_session;
            {one}
            IF p_heard <> '' THEN
                UPDATE fencelock_broken SET told = TRUE WHERE session = p_session AND told = FALSE AND FIND_IN_SET(seq, p_heard);
            END IF;
        END IF;
        COMMIT;
    END;
    IF v_lives THEN
        SELECT CAST(0 AS SIGNED) AS seq, '' AS name, CAST(0 AS UNSIGNED) AS client, CAST(0 AS UNSIGNED) AS number, '' AS reason
        UNION ALL
        (SELECT seq, name, client, number, reason FROM fencelock_broken WHERE session = p_session AND told = FALSE ORDER BY id LIMIT 1000);
    ELSE
        SELECT -1, '', 0, 0, '';
    END IF;
END
//

-- Joins a queue at its tail, with the number `p_new`, or with one that is drawn here: the answer of fencelock_enter.
CREATE PROCEDURE fencelock__enter(
    p_b SMALLINT, p_session BIGINT UNSIGNED, p_epoch BIGINT, p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_number BIGINT UNSIGNED,
    p_weight BIGINT, p_capacity BIGINT, p_wait BOOLEAN, p_again BOOLEAN, p_purpose VARBINARY(512), p_new BIGINT,
    INOUT io_rung LONGBLOB, OUT o_answer INT, OUT o_one BIGINT, OUT o_two BIGINT
) SQL SECURITY DEFINER
work: BEGIN
    DECLARE v_told LONGBLOB DEFAULT '';
    DECLARE v_head, v_epoch, v_expires, v_quiet_until, v_seq, v_weight, v_capacity, v_first, v_boundary, v_look_in, v_cleared BIGINT;
    DECLARE v_granted, v_alone, v_shared, v_admitted, v_settled BOOLEAN DEFAULT FALSE;
    DECLARE v_used DECIMAL(40);
    DECLARE v_now BIGINT DEFAULT {us};
    front: LOOP
        SET v_head = NULL, v_shared = NULL, v_seq = IF(p_again, NULL, 0);
        SELECT s.epoch, s.expires, l.quiet_until, IF(q.shared = 0, NULL, COALESCE(q.head, 0)), q.shared INTO v_epoch, v_expires, v_quiet_until, v_head, v_shared
            FROM fencelock_layout AS l LEFT JOIN fencelock_session AS s ON s.id = p_session
            LEFT JOIN fencelock_queue AS q ON q.b = p_b AND q.name = p_name WHERE l.one = 1;
        SET o_answer = CASE WHEN COALESCE(v_expires, 0) <= v_now THEN 5 WHEN v_epoch > p_epoch THEN 4 END, o_one = IF(o_answer = 4, v_epoch, NULL);
        IF NOT v_shared THEN
            -- With the row locked, no release without the bucket's lock takes it away.
            SELECT COALESCE(MAX(head), 0) INTO v_head FROM fencelock_queue WHERE b = p_b AND name = p_name FOR UPDATE;
        END IF;
        IF v_head IS NULL {interrupted}
        SET v_admitted = v_quiet_until <= v_now;
        IF p_again THEN
            SELECT COALESCE(MAX(seq), 0), MAX(granted) INTO v_seq, v_granted FROM fencelock_place
                WHERE b = p_b AND name = p_name AND seq >= v_head AND client = p_client AND number = p_number AND session = p_session;
            IF v_seq IS NULL {interrupted}
        END IF;
        IF v_head > 0 OR NOT v_admitted THEN
            CALL fencelock__front(p_b, p_name, v_head, IF(v_seq > 0, v_seq, 9223372036854775807), v_quiet_until, v_first, v_boundary, v_alone, v_weight, v_capacity, v_look_in);
        END IF;
        IF o_answer IS NULL AND v_seq > 0 THEN
            SET o_answer = NOT v_granted, o_one = v_seq, o_two = IF(v_granted, NULL, COALESCE(v_look_in, 100));
        END IF;
        IF o_answer IS NOT NULL THEN
            LEAVE work;
        END IF;
        IF v_settled OR v_head = 0 OR v_boundary > v_now THEN
            LEAVE front;
        END IF;
        CALL fencelock__settle(p_b, p_name, NULL, io_rung, v_told);
        SET v_settled = TRUE;
    END LOOP;
    SET @fencelock_taken = v_head > 0;
    IF v_head > 0 THEN
        IF v_capacity IS NULL {interrupted}
        IF v_capacity <> p_capacity THEN
            -- Of the dead, none stands for a capacity.
            CALL fencelock__clear(p_b, p_name, v_head, 9223372036854775807, v_cleared);
            CALL fencelock__settle(p_b, p_name, NULL, io_rung, v_told);
            SET o_answer = IF(v_cleared = 0, 3, 6), o_one = IF(v_cleared = 0, v_weight, NULL), o_two = IF(v_cleared = 0, v_capacity, NULL);
            LEAVE work;
        END IF;
        SET v_admitted = v_admitted AND v_first IS NULL AND NOT v_alone;
        IF v_admitted THEN
            SELECT SUM(weight), MIN(granted) INTO v_used, v_granted FROM fencelock_place WHERE b = p_b AND name = p_name AND seq >= v_head;
            IF v_used IS NULL {interrupted}
            SET v_admitted = v_granted AND p_weight + v_used <= p_capacity;
        END IF;
    END IF;
    IF NOT v_admitted AND NOT p_wait THEN
        SET o_answer = 2;
        LEAVE work;
    END IF;
    IF p_new IS NULL THEN
        UPDATE fencelock_bucket SET last = LAST_INSERT_ID(GREATEST(last + 1, v_now * 128 DIV 1000)) WHERE b = p_b;
        {one}
        SET p_new = LAST_INSERT_ID();
    END IF;
    IF v_head = 0 THEN
        INSERT INTO fencelock_queue VALUES (p_b, p_name, p_new, FALSE);
        {one}
    ELSEIF NOT v_shared THEN
        UPDATE fencelock_queue SET shared = TRUE WHERE b = p_b AND name = p_name;
        {one}
    END IF;
    INSERT INTO fencelock_place VALUES (p_b, p_name, p_new, v_admitted, p_weight, p_capacity, p_session, p_client, p_number, v_now, p_purpose);
    {one}
    SET o_answer = NOT v_admitted, o_one = p_new, o_two = IF(v_admitted, NULL, COALESCE(v_look_in, 100));
END
//

-- Joins a queue at its tail. Answers: 0 granted (number) · 1 waiting (number, look in) · 2 busy · 3 conflict (weight, capacity) · 4 stale
-- (epoch) · 5 the session has ended · 6 to be sent again.
CREATE PROCEDURE fencelock_enter(
    p_session BIGINT UNSIGNED, p_epoch BIGINT, p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_number BIGINT UNSIGNED, p_weight BIGINT,
    p_capacity BIGINT, p_wait BOOLEAN, p_again BOOLEAN, p_purpose VARBINARY(512)
) SQL SECURITY DEFINER
work: BEGIN
    DECLARE v_rung LONGBLOB;
    DECLARE v_answer, v_one, v_two, v_epoch, v_now BIGINT;
    DECLARE v_b SMALLINT DEFAULT CONV(LEFT(SHA2(p_name, 256), 3), 16, 10);
    IF NOT COALESCE(p_name <> '' AND p_epoch > 0 AND NOT ISNULL(p_client) AND NOT ISNULL(p_number) AND p_weight BETWEEN 1 AND p_capacity AND p_capacity <= 4294967295 AND p_wait IN (0, 1) AND p_again IN (0, 1), FALSE) {refused}
    {begin}
        -- A request that may wait draws its number in the statement that locks the bucket; other requests draw it once they are admitted.
        -- Numbers never fall behind the clock, in 1/128 ms: they rise over failovers and restored backups.
        IF p_wait THEN
            UPDATE fencelock_bucket SET last = LAST_INSERT_ID(GREATEST(last + 1, {us} * 128 DIV 1000)) WHERE b = v_b;
            {one}
            SET v_one = LAST_INSERT_ID(), v_now = {us};
            IF @fencelock_taken IS NOT TRUE THEN
                -- A name without places has no row.
                INSERT IGNORE INTO fencelock_queue SELECT v_b, p_name, v_one, FALSE FROM fencelock_layout AS l JOIN fencelock_session AS s
                    WHERE l.one = 1 AND l.quiet_until <= v_now AND s.id = p_session AND s.expires > v_now AND s.epoch <= p_epoch;
                IF ROW_COUNT() = 1 THEN
                    INSERT INTO fencelock_place VALUES (v_b, p_name, v_one, TRUE, p_weight, p_capacity, p_session, p_client, p_number, v_now, p_purpose);
                    {one}
                    COMMIT;
                    SELECT 0, v_one, NULL;
                    LEAVE work;
                END IF;
            END IF;
        ELSE
            {lock}
        END IF;
        CALL fencelock__enter(v_b, p_session, p_epoch, p_name, p_client, p_number, p_weight, p_capacity, p_wait, p_again, p_purpose, v_one,
            v_rung, v_answer, v_one, v_two);
    {commit}
    SELECT v_answer, v_one, v_two;
END
//

-- Gives up a place, with this number unless it is null, or replaces the claim of a grant by the lighter one of `p_weight`: 0 it was not there ·
-- 1 done · 2 a transaction holds it, whose number is `o_seq`.
CREATE PROCEDURE fencelock__leave(
    p_b SMALLINT, p_session BIGINT UNSIGNED, p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_number BIGINT UNSIGNED, p_seq BIGINT, p_weight BIGINT,
    INOUT io_rung LONGBLOB, INOUT io_granted LONGBLOB, OUT o_answer INT, OUT o_seq BIGINT
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_weight BIGINT;
    IF p_seq IS NULL THEN
        SELECT COALESCE(MAX(p.seq), 0) INTO p_seq FROM fencelock_queue AS q JOIN fencelock_place AS p ON p.b = p_b AND p.name = p_name AND p.seq >= q.head
            WHERE q.b = p_b AND q.name = p_name AND p.client = p_client AND p.number = p_number AND p.session = p_session;
        IF p_seq IS NULL {interrupted}
    END IF;
    SET o_answer = NULL, o_seq = 0;
    SELECT weight INTO v_weight FROM fencelock_place WHERE b = p_b AND name = p_name AND seq = p_seq AND client = p_client AND number = p_number
        AND session = p_session AND (p_weight IS NULL OR granted AND weight >= p_weight) FOR UPDATE SKIP LOCKED;
    IF v_weight IS NULL THEN
        SELECT COUNT(*) * 2, COALESCE(MAX(seq), 0) INTO o_answer, o_seq FROM fencelock_place WHERE b = p_b AND name = p_name AND seq = p_seq
            AND client = p_client AND number = p_number AND session = p_session AND (p_weight IS NULL OR granted AND weight >= p_weight);
        IF o_answer IS NULL {interrupted}
    ELSE
        IF p_weight IS NULL THEN
            DELETE FROM fencelock_place WHERE b = p_b AND name = p_name AND seq = p_seq;
            {one}
            DELETE FROM fencelock_queue WHERE b = p_b AND name = p_name AND NOT shared;
        ELSEIF v_weight > p_weight THEN
            UPDATE fencelock_place SET weight = p_weight WHERE b = p_b AND name = p_name AND seq = p_seq;
            {one}
        END IF;
        IF p_weight IS NOT NULL OR ROW_COUNT() = 0 THEN
            CALL fencelock__settle(p_b, p_name, p_session, io_rung, io_granted);
        END IF;
        SET o_answer = 1;
    END IF;
END
//

-- The answer of fencelock__leave, 0 (only a batch has an epoch), the number of the held place, and the session's new grants ('client-number-seq,').
CREATE PROCEDURE fencelock_leave(
    p_session BIGINT UNSIGNED, p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_number BIGINT UNSIGNED, p_seq BIGINT
) SQL SECURITY DEFINER
work: BEGIN
    DECLARE v_rung, v_told LONGBLOB;
    DECLARE v_answer, v_seq, v_epoch BIGINT;
    DECLARE v_b SMALLINT DEFAULT CONV(LEFT(SHA2(p_name, 256), 3), 16, 10);
    IF NOT COALESCE(p_name <> '' AND NOT ISNULL(p_client) AND NOT ISNULL(p_number), FALSE) {refused}
    {begin}
        -- MariaDB alone, MySQL reads a comment: a grant leaves without the bucket's lock, and its queue with it, unless others share the queue. Nothing
        -- here waits. Each other change of a queue that is not shared locks its row, or the place, first.
        /*M! BEGIN
            DECLARE EXIT HANDLER FOR 1205 BEGIN ROLLBACK; SET v_seq = NULL; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ WRITE; END;
            SET STATEMENT innodb_lock_wait_timeout = 0 FOR DELETE FROM fencelock_place WHERE b = v_b AND name = p_name AND seq = p_seq AND granted
                AND client = p_client AND number = p_number AND session = p_session;
            SET v_seq = IF(ROW_COUNT() = 1, 0, NULL);
            IF v_seq = 0 AND @fencelock_taken IS NOT TRUE THEN
                SET STATEMENT innodb_lock_wait_timeout = 0 FOR DELETE FROM fencelock_queue WHERE b = v_b AND name = p_name AND NOT shared;
                IF ROW_COUNT() = 1 THEN
                    COMMIT;
                    SELECT 1, 0, 0, '';
                    LEAVE work;
                END IF;
            END IF;
        END; */
        IF v_seq = 0 THEN
            CALL fencelock__settle(v_b, p_name, p_session, v_rung, v_told);
            SET v_answer = 1;
        ELSE
            {lock}
            CALL fencelock__leave(v_b, p_session, p_name, p_client, p_number, p_seq, NULL, v_rung, v_told, v_answer, v_seq);
        END IF;
    {commit}
    SELECT v_answer, 0, v_seq, COALESCE(v_told, '');
END
//

-- Requests of one session in one transaction, 64 at most: '[[kind, "<name in hex>", client, number, seq, weight, capacity, wait, again, "<purpose in
-- hex>"], …]'; 0 enters, 1 leaves, 2 withdraws; null is where a kind has no use. Answers the answers, and new grants as fencelock_leave.
CREATE PROCEDURE fencelock_batch(p_session BIGINT UNSIGNED, p_epoch BIGINT, p_requests LONGTEXT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_rung, v_told, v_free, v_gone LONGBLOB DEFAULT '';
    DECLARE v_answers LONGTEXT DEFAULT '{}';
    DECLARE v_count, v_buckets, v_kinds, v_valid, v_locked, v_n, v_kind, v_b, v_wait, v_again, v_answer INT;
    DECLARE v_now, v_last, v_one, v_two, v_seq, v_weight, v_capacity BIGINT;
    DECLARE v_client, v_number, v_epoch BIGINT UNSIGNED;
    DECLARE v_name, v_purpose, v_once VARBINARY(512);
    DECLARE v_rest CURSOR FOR SELECT n, kind, {b}, {name}, client, number, seq, weight, capacity, wait, again, UNHEX(LEFT(purpose, 1024)) FROM {requests}
        WHERE NOT FIND_IN_SET(n, v_free) AND NOT FIND_IN_SET(n, v_gone) ORDER BY n;
    SELECT COUNT(*), COUNT(DISTINCT {b}), MIN({b}), BIT_OR(1 << kind), MIN(COALESCE(kind BETWEEN 0 AND 2 AND LENGTH({name}) > 0 AND LENGTH(hex) <= 1024 AND LENGTH(COALESCE(purpose, '')) <= 1024 AND NOT ISNULL(client) AND NOT ISNULL(number)
            AND (kind > 0 OR weight BETWEEN 1 AND capacity AND capacity <= 4294967295 AND wait IN (0, 1) AND again IN (0, 1)), FALSE))
        INTO v_count, v_buckets, v_b, v_kinds, v_valid FROM {requests};
    IF NOT COALESCE(p_epoch > 0 AND v_count BETWEEN 1 AND 64 AND v_valid, FALSE) {refused}
    {begin}
        IF v_buckets = 1 THEN
            UPDATE fencelock_bucket SET last = LAST_INSERT_ID(GREATEST(last, {us} * 128 DIV 1000) + v_count) WHERE b = v_b;
            {one}
            SET v_last = LAST_INSERT_ID() - v_count, v_now = {us};
        ELSE
            SELECT COUNT(k.last), MAX(k.last) INTO v_locked, v_last FROM (SELECT DISTINCT {b} AS b FROM {requests} ORDER BY b LIMIT 64) AS d
                STRAIGHT_JOIN fencelock_bucket AS k FORCE INDEX (PRIMARY) ON k.b = d.b FOR UPDATE;
            IF NOT (v_locked <=> v_buckets) {interrupted}
            SET v_now = {us}, v_last = GREATEST(v_last, v_now * 128 DIV 1000);
            IF v_kinds & 1 THEN
                INSERT INTO fencelock_bucket SELECT DISTINCT {b}, 0 FROM {requests} ON DUPLICATE KEY UPDATE last = v_last + 64;
                IF ROW_COUNT() <> 2 * v_buckets {interrupted}
            END IF;
        END IF;
        -- Request n draws the number v_last + n. Few requests are cheaper one by one.
        IF v_count <= IF(@fencelock_taken, 8, 3) THEN
            SET v_kinds = v_kinds & 4;
        ELSE
            SELECT COALESCE(GROUP_CONCAT(n), '') INTO v_once FROM (SELECT MIN(n) AS n FROM {requests} GROUP BY CONV(LEFT(SHA2({name}, 256), 15), 16, 10) HAVING COUNT(*) = 1) AS g;
            IF v_once IS NULL {interrupted}
        END IF;
        IF v_kinds & 1 THEN
            SET v_free = NULL;
            SELECT COUNT(*), COALESCE(GROUP_CONCAT(r.n), '') INTO v_n, v_free FROM {requests}
                JOIN fencelock_session AS s ON s.id = p_session AND s.expires > v_now AND s.epoch <= p_epoch
                JOIN fencelock_layout AS l ON l.one = 1 AND l.quiet_until <= v_now
                LEFT JOIN fencelock_queue AS q ON q.b = {b} AND q.name = {name} WHERE r.kind = 0 AND FIND_IN_SET(r.n, v_once) AND q.b IS NULL;
            IF v_free IS NULL {interrupted}
            INSERT INTO fencelock_queue SELECT {b}, {name}, v_last + n, FALSE FROM {requests} WHERE FIND_IN_SET(n, v_free);
            IF ROW_COUNT() <> v_n {interrupted}
            INSERT INTO fencelock_place SELECT {b}, {name}, v_last + n, TRUE, weight, capacity, p_session, client, number, v_now, UNHEX(purpose)
                FROM {requests} WHERE FIND_IN_SET(n, v_free);
            IF ROW_COUNT() <> v_n {interrupted}
            SET v_count = v_count - v_n;
        END IF;
        IF v_kinds & 2 THEN
            SET v_gone = NULL;
            SELECT COUNT(*), COALESCE(GROUP_CONCAT(r.n), '') INTO v_n, v_gone FROM {requests}
                STRAIGHT_JOIN fencelock_queue AS q FORCE INDEX (PRIMARY) ON q.b = {b} AND q.name = {name} AND NOT q.shared
                STRAIGHT_JOIN fencelock_place AS p FORCE INDEX (PRIMARY) ON p.b = {b} AND p.name = {name} AND p.seq = r.seq
                WHERE r.kind = 1 AND FIND_IN_SET(r.n, v_once) AND p.client = r.client AND p.number = r.number AND p.session = p_session
                FOR UPDATE /*!80000 OF q, p */ SKIP LOCKED;
            IF v_gone IS NULL {interrupted}
            DELETE q, p FROM {requests} STRAIGHT_JOIN fencelock_queue AS q FORCE INDEX (PRIMARY) ON q.b = {b} AND q.name = {name}
                STRAIGHT_JOIN fencelock_place AS p FORCE INDEX (PRIMARY) ON p.b = q.b AND p.name = q.name AND p.seq = r.seq WHERE FIND_IN_SET(r.n, v_gone);
            IF ROW_COUNT() <> 2 * v_n {interrupted}
            SET v_count = v_count - v_n;
        END IF;
        OPEN v_rest;
        WHILE v_count > 0 DO
            SET v_n = NULL, v_count = v_count - 1;
            FETCH v_rest INTO v_n, v_kind, v_b, v_name, v_client, v_number, v_seq, v_weight, v_capacity, v_wait, v_again, v_purpose;
            IF v_n IS NULL {interrupted}
            IF v_kind = 0 THEN
                CALL fencelock__enter(v_b, p_session, p_epoch, v_name, v_client, v_number, v_weight, v_capacity, v_wait, v_again, v_purpose, v_last + v_n,
                    v_rung, v_answer, v_one, v_two);
            ELSE
                CALL fencelock__leave(v_b, p_session, v_name, v_client, v_number, v_seq, NULL, v_rung, v_told, v_answer, v_one);
                SET v_two = v_one, v_one = 0;
            END IF;
            SET v_answers = JSON_SET(v_answers, CONCAT('$."', v_n, '"'), CONCAT_WS(',', v_answer, IF(v_kind = 2, 'epoch', v_one), v_two));
        END WHILE;
        SET v_epoch = IF(v_kinds & 4, p_session, NULL);
    {commit}
    SELECT REPLACE(GROUP_CONCAT(CASE WHEN FIND_IN_SET(n, v_free) THEN CONCAT('0,', v_last + n) WHEN FIND_IN_SET(n, v_gone) THEN '1,0,0'
        ELSE LEFT(JSON_UNQUOTE(JSON_EXTRACT(v_answers, CONCAT('$."', n, '"'))), 100) END
        ORDER BY n SEPARATOR ';'), 'epoch', COALESCE(v_epoch, 0)), v_told FROM {requests};
END
//

-- Waits until no transaction holds this place any more, for as long as the session waits for rows. No bucket is locked.
CREATE PROCEDURE fencelock_await(p_name VARBINARY(512), p_seq BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_seq BIGINT;
    {begin}
        SELECT seq INTO v_seq FROM fencelock_place WHERE b = CONV(LEFT(SHA2(p_name, 256), 3), 16, 10) AND name = p_name AND seq = p_seq FOR UPDATE;
        COMMIT;
    END;
    SELECT 1;
END
//

-- Replaces the claim of a grant by a lighter one, which lets others in: 0 it is not there · 1 done · 2 a transaction holds it. Then as fencelock_leave.
CREATE PROCEDURE fencelock_lighten(
    p_session BIGINT UNSIGNED, p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_number BIGINT UNSIGNED, p_seq BIGINT, p_weight BIGINT
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_rung, v_told LONGBLOB DEFAULT '';
    DECLARE v_answer, v_seq, v_epoch BIGINT;
    DECLARE v_b SMALLINT DEFAULT CONV(LEFT(SHA2(p_name, 256), 3), 16, 10);
    IF NOT COALESCE(p_name <> '' AND NOT ISNULL(p_client) AND NOT ISNULL(p_number) AND p_seq > 0 AND p_weight > 0, FALSE) {refused}
    {begin}
        {lock}
        CALL fencelock__leave(v_b, p_session, p_name, p_client, p_number, p_seq, p_weight, v_rung, v_told, v_answer, v_seq);
    {commit}
    SELECT v_answer, v_told;
END
//

-- How places of a session stand, as in '[["<name in hex>", number, …], …]'. Answers numbers with commas between: whether the session lives, then
-- for each name when to look again and for each of its places 0 granted, 1 waiting, 2 missing.
CREATE PROCEDURE fencelock_look(p_session BIGINT UNSIGNED, p_places LONGTEXT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_rung, v_told LONGBLOB DEFAULT '';
    DECLARE v_answer, v_one, v_some LONGTEXT;
    DECLARE v_name VARBINARY(512);
    DECLARE v_b, v_alone, v_room, v_at INT DEFAULT 0;
    DECLARE v_head, v_first, v_boundary, v_quiet_until, v_weight, v_capacity, v_last, v_look_in, v_least, v_epoch BIGINT;
    IF NOT COALESCE(p_places IS NOT NULL, FALSE) {refused}
    {check}
    SELECT COUNT(s.id), MAX(l.quiet_until) INTO v_answer, v_quiet_until FROM fencelock_layout AS l
        LEFT JOIN fencelock_session AS s ON s.id = p_session AND s.expires > {us} WHERE l.one = 1;
    WHILE v_answer <> '0' AND v_at < JSON_LENGTH(p_places) DO
        SET v_one = JSON_EXTRACT(p_places, CONCAT('$[', v_at, ']'));
        SET v_name = UNHEX(JSON_UNQUOTE(JSON_EXTRACT(v_one, '$[0]')));
        SET v_b = CONV(LEFT(SHA2(v_name, 256), 3), 16, 10), v_head = NULL, v_last = NULL, v_room = FALSE, v_some = NULL;
        SELECT COALESCE(MAX(head), 9223372036854775807) INTO v_head FROM fencelock_queue WHERE b = v_b AND name = v_name;
        IF v_head IS NULL {interrupted}
        SET v_least = COALESCE(JSON_EXTRACT(v_one, '$[1]'), 0);
        CALL fencelock__front(v_b, v_name, v_head, v_least, v_quiet_until, v_first, v_boundary, v_alone, v_weight, v_capacity, v_look_in);
        -- A departure that lets in more than are granted at once leaves the others to their looks.
        IF v_first IS NOT NULL AND NOT v_alone THEN
            SELECT p.weight + (SELECT COALESCE(SUM(weight), 0) FROM fencelock_place WHERE b = v_b AND name = v_name AND seq >= v_head AND seq < v_first)
                <= p.capacity INTO v_room FROM fencelock_place AS p WHERE p.b = v_b AND p.name = v_name AND p.seq = v_first;
        END IF;
        IF v_boundary <= {us} OR v_room THEN
            {begin}
                SELECT last INTO v_last FROM fencelock_bucket WHERE b = v_b FOR UPDATE SKIP LOCKED;
                IF v_last IS NOT NULL THEN
                    CALL fencelock__settle(v_b, v_name, NULL, v_rung, v_told);
                END IF;
            {commit}
            SET v_rung = '';
            SELECT head INTO v_head FROM fencelock_queue WHERE b = v_b AND name = v_name;
            CALL fencelock__front(v_b, v_name, v_head, v_least, v_quiet_until, v_first, v_boundary, v_alone, v_weight, v_capacity, v_look_in);
        END IF;
        -- In one statement: to take a thousand places out of the text one by one took half a second.
        SELECT GROUP_CONCAT(COALESCE(NOT p.granted, 2) ORDER BY t.n) INTO v_some
            FROM JSON_TABLE(JSON_REMOVE(v_one, '$[0]'), '$[*]' COLUMNS (n FOR ORDINALITY, seq BIGINT PATH '$')) AS t
            LEFT JOIN fencelock_place AS p ON p.b = v_b AND p.name = v_name AND p.seq = t.seq AND p.session = p_session;
        SET v_answer = CONCAT(v_answer, ',', COALESCE(v_look_in, 100), ',', v_some), v_at = v_at + 1;
    END WHILE;
    SELECT v_answer;
END
//

-- Sleeps until the session was rung more often than `p_mark`, or for so many seconds. Answers how often it was rung, and whether the lock
-- of the name `p_pillow` was free: the sleep is a wait for that lock of the session's other connection (see NOTES.md). Locks no row.
CREATE PROCEDURE fencelock_listen(p_session BIGINT UNSIGNED, p_mark BIGINT, p_pillow VARBINARY(64), p_seconds INT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_free BOOLEAN DEFAULT FALSE;
    DECLARE v_rung BIGINT;
    SELECT rung INTO v_rung FROM fencelock_session WHERE id = p_session;
    IF p_mark = v_rung THEN
        SET v_free = COALESCE(GET_LOCK(p_pillow, p_seconds), 0);
    END IF;
    DO IF(v_free, RELEASE_LOCK(p_pillow), 0);
    SELECT COALESCE((SELECT rung FROM fencelock_session WHERE id = p_session), -1), v_free;
END
//

-- Whether a client that grants may ring this bell: 0, or the number of the error. The definer's rights would end the query of any other lock.
CREATE PROCEDURE fencelock_try_bell(p_bell VARBINARY(64)) SQL SECURITY DEFINER
BEGIN
    DECLARE v_error INT DEFAULT 0;
    IF NOT COALESCE({bell}, FALSE) {refused}
    BEGIN
        DECLARE EXIT HANDLER FOR SQLEXCEPTION GET DIAGNOSTICS CONDITION 1 v_error = MYSQL_ERRNO;
        KILL QUERY IS_USED_LOCK(p_bell);
    END;
    SELECT v_error;
END
//

-- A queue in short. The first row: 0, 0, how many of the living are in it, how many of them hold, and why none is granted. Further ones: client, number and
-- position of those of `p_mine`, as in 'client-number,client-number'.
CREATE PROCEDURE fencelock_contention(p_name VARBINARY(512), p_mine LONGTEXT) SQL SECURITY DEFINER READS SQL DATA
BEGIN
    DECLARE v_head BIGINT DEFAULT 0;
    DECLARE v_now BIGINT DEFAULT {us};
    DECLARE v_b SMALLINT DEFAULT CONV(LEFT(SHA2(p_name, 256), 3), 16, 10);
    SELECT head INTO v_head FROM fencelock_queue WHERE b = v_b AND name = p_name;
    SELECT 0, 0, COUNT(s.id), CAST(COALESCE(SUM(p.granted AND NOT ISNULL(s.id)), 0) AS SIGNED), COALESCE((
            SELECT CONCAT('no client is granted a lock until ', DATE_FORMAT(FROM_UNIXTIME(quiet_until DIV 1000000), '%Y-%m-%dT%H:%i:%sZ'),
                ', because this server may not know all locks that were granted before: it was a replica, or a dump was read in')
            FROM fencelock_layout WHERE quiet_until > v_now), IF(SUM(p.granted AND ISNULL(s.id)) > 0,
                'the holder is dead: its lock ends when a client asks for it, unless a transaction that called fencelock_hold keeps it (information_schema.innodb_trx)', NULL))
        FROM fencelock_place AS p LEFT JOIN fencelock_session AS s ON s.id = p.session AND s.expires > v_now
        WHERE p.b = v_b AND p.name = p_name AND p.seq >= v_head
    UNION ALL
    SELECT q.client, q.number, q.position, 0, NULL FROM (
        SELECT p.client, p.number, ROW_NUMBER() OVER (ORDER BY p.seq) AS position
        FROM fencelock_place AS p JOIN fencelock_session AS s ON s.id = p.session AND s.expires > v_now
        WHERE p_mine <> '' AND p.b = v_b AND p.name = p_name AND p.seq >= v_head) AS q
    WHERE FIND_IN_SET(CONCAT(q.client, '-', q.number), p_mine);
END
//

-- Which of these names a place waits for, by their numbers in the list.
CREATE PROCEDURE fencelock_waited_for(p_names LONGTEXT) SQL SECURITY DEFINER READS SQL DATA
BEGIN
    SELECT 0 UNION ALL SELECT n.i FROM JSON_TABLE(p_names, '$[*]' COLUMNS (i FOR ORDINALITY, hex VARCHAR(1024) PATH '$[0]')) AS n
        WHERE EXISTS (SELECT 1 FROM fencelock_place AS p WHERE p.b = CONV(LEFT(SHA2(UNHEX(n.hex), 256), 3), 16, 10) AND p.name = UNHEX(n.hex) AND NOT p.granted);
END
//

-- Part of a queue, front first: up to p_limit of the living after the first p_skip of those behind the number p_after.
CREATE PROCEDURE fencelock_show(p_name VARBINARY(512), p_after BIGINT, p_skip BIGINT UNSIGNED, p_limit BIGINT UNSIGNED) SQL SECURITY DEFINER READS SQL DATA
BEGIN
    DECLARE v_head BIGINT DEFAULT 0;
    DECLARE v_now BIGINT DEFAULT {us};
    DECLARE v_b SMALLINT DEFAULT CONV(LEFT(SHA2(p_name, 256), 3), 16, 10);
    SELECT head INTO v_head FROM fencelock_queue WHERE b = v_b AND name = p_name;
    SELECT p.seq, p.client, p.number, p.granted, p.weight, p.capacity, p.since, p.purpose, s.host, s.pid, s.client
        FROM fencelock_place AS p JOIN fencelock_session AS s ON s.id = p.session AND s.expires > v_now
        WHERE p.b = v_b AND p.name = p_name AND p.seq >= v_head AND p.seq > p_after ORDER BY p.seq LIMIT p_skip, p_limit;
END
//

-- Up to p_limit names behind this one, in the order of the buckets, and whether a living session is in their queues.
CREATE PROCEDURE fencelock_names(p_b SMALLINT, p_name VARBINARY(512), p_limit INT) SQL SECURITY DEFINER READS SQL DATA
BEGIN
    DECLARE v_now BIGINT DEFAULT {us};
    SELECT q.b, q.name, EXISTS (SELECT 1 FROM fencelock_place AS p JOIN fencelock_session AS s ON s.id = p.session AND s.expires > v_now
            WHERE p.b = q.b AND p.name = q.name AND p.seq >= q.head)
        FROM fencelock_queue AS q WHERE q.b > p_b OR (q.b = p_b AND q.name > p_name) ORDER BY q.b, q.name LIMIT p_limit;
END
//

-- Breaks exactly this grant, and keeps the record: 0 it was not there · 1 it was, or this record is kept already · 2 a transaction holds it.
CREATE PROCEDURE fencelock_break(
    p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_number BIGINT UNSIGNED, p_seq BIGINT, p_record BLOB, p_reason VARBINARY(512)
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_rung, v_told LONGBLOB DEFAULT '';
    DECLARE v_answer, v_found, v_seq, v_epoch BIGINT;
    DECLARE v_session BIGINT UNSIGNED;
    DECLARE v_b SMALLINT DEFAULT CONV(LEFT(SHA2(p_name, 256), 3), 16, 10);
    IF NOT COALESCE(p_name <> '' AND NOT ISNULL(p_client) AND NOT ISNULL(p_number) AND p_seq > 0 AND p_record <> '' AND p_reason IS NOT NULL, FALSE) {refused}
    {begin}
        {lock}
        SELECT (SELECT COUNT(*) > 0 FROM fencelock_broken WHERE name = p_name AND seq = p_seq AND record = p_record), COUNT(*), MAX(session)
            INTO v_answer, v_found, v_session FROM fencelock_place
            WHERE b = v_b AND name = p_name AND seq = p_seq AND granted AND client = p_client AND number = p_number;
        IF v_answer IS NULL {interrupted}
        IF v_answer = 0 AND v_found THEN
            CALL fencelock__leave(v_b, v_session, p_name, p_client, p_number, p_seq, NULL, v_rung, v_told, v_answer, v_seq);
            IF v_answer = 1 THEN
                INSERT INTO fencelock_broken (name, seq, session, client, number, reason, record, at, told)
                    VALUES (p_name, p_seq, v_session, p_client, p_number, p_reason, p_record, {us}, FALSE);
                {one}
                -- The session that lost the grant reads no answer.
                SET v_rung = CONCAT(v_rung, IF(v_told = '', '', CONCAT(v_session, ',')));
            END IF;
        END IF;
    {commit}
    SELECT v_answer;
END
//

-- The records of broken grants, oldest first.
CREATE PROCEDURE fencelock_breaks(p_name VARBINARY(512)) SQL SECURITY DEFINER READS SQL DATA
BEGIN
    SELECT record FROM fencelock_broken WHERE name = p_name ORDER BY id;
END
//

-- Writes the note on a lock, or deletes it where there is no value, if this grant is current: whether it is. The place is locked as
-- fencelock_hold does it, so that the grant outlasts the commit; no bucket is. The session names the writer.
CREATE PROCEDURE fencelock_write_note(
    p_name VARBINARY(512), p_client BIGINT UNSIGNED, p_number BIGINT UNSIGNED, p_seq BIGINT, p_value VARBINARY(4096), p_ttl BIGINT
) SQL SECURITY DEFINER
BEGIN
    DECLARE v_session, v_pid, v_client BIGINT UNSIGNED;
    DECLARE v_host VARBINARY(512);
    DECLARE v_now BIGINT;
    DECLARE v_found, v_lives, v_noted BOOLEAN;
    DECLARE v_b SMALLINT DEFAULT CONV(LEFT(SHA2(p_name, 256), 3), 16, 10);
    IF NOT COALESCE(p_name <> '' AND NOT ISNULL(p_client) AND NOT ISNULL(p_number) AND p_seq > 0 AND COALESCE(p_ttl, 1) BETWEEN 1 AND 3153600000000000, FALSE) {refused}
    {begin}
        SELECT COUNT(*), MAX(session) INTO v_found, v_session FROM fencelock_place WHERE b = v_b AND name = p_name AND seq = p_seq AND granted
            AND client = p_client AND number = p_number LOCK IN SHARE MODE;
        IF v_found IS NULL {interrupted}
        -- After the lock, which may have been waited for.
        SET v_now = {us};
        SELECT COALESCE(MAX(expires) > v_now, FALSE), MAX(host), MAX(pid), MAX(client) INTO v_lives, v_host, v_pid, v_client
            FROM fencelock_session WHERE id = v_session;
        IF v_lives IS NULL {interrupted}
        IF v_lives AND p_value IS NULL THEN
            DELETE FROM fencelock_note WHERE name = p_name;
            SELECT COUNT(*) INTO v_noted FROM fencelock_note WHERE name = p_name;
            IF IF(v_noted, NULL, 0) IS NULL {interrupted}
        ELSEIF v_lives THEN
            REPLACE INTO fencelock_note VALUES (p_name, p_value, p_seq, v_host, v_pid, v_client, v_now, v_now + p_ttl);
            IF NOT COALESCE(ROW_COUNT() > 0, FALSE) {interrupted}
        END IF;
        COMMIT;
    END;
    SELECT v_lives;
END
//

-- The note on a lock, unless the note has expired, and the time. Always one row; without a note all but the time is NULL.
CREATE PROCEDURE fencelock_read_note(p_name VARBINARY(512)) SQL SECURITY DEFINER READS SQL DATA
BEGIN
    DECLARE v_now BIGINT DEFAULT {us};
    SELECT v_now, n.value, n.token, n.host, n.pid, n.client, n.written, n.expires FROM (SELECT 1 AS one) AS o
        LEFT JOIN fencelock_note AS n ON n.name = p_name AND (n.expires IS NULL OR n.expires > v_now);
END
//

-- Ends a session. Places left in its queues are dead from now on.
CREATE PROCEDURE fencelock_close(p_session BIGINT UNSIGNED) SQL SECURITY DEFINER
BEGIN
    {check}
    DELETE FROM fencelock_session WHERE id = p_session;
    SELECT 1;
END
//

-- Clears away what dead sessions left in some buckets, expired notes, and old records. Answers the next bucket. This waits for no bucket.
CREATE PROCEDURE fencelock_clear_up(p_from INT) SQL SECURITY DEFINER
BEGIN
    DECLARE v_rung, v_told LONGBLOB DEFAULT '';
    DECLARE v_upto INT DEFAULT LEAST(p_from + 256, 4096);
    DECLARE v_name, v_after VARBINARY(512) DEFAULT '';
    DECLARE v_last, v_head, v_epoch BIGINT;
    DECLARE v_looked, v_cleared, v_b INT DEFAULT 0;
    DECLARE v_now BIGINT DEFAULT {us};
    IF NOT COALESCE(p_from BETWEEN 0 AND 4095, FALSE) {refused}
    {check}
    IF p_from = 0 THEN
        -- Once a round. The clock went back: no session owns the time that it was ahead by.
        UPDATE fencelock_session SET expires = {us} + ttl WHERE expires > {us} + ttl ORDER BY id LIMIT 100;
        UPDATE fencelock_layout SET quiet_until = {us} + quiet_for WHERE one = 1 AND quiet_until > {us} + quiet_for;
        DELETE FROM fencelock_session WHERE expires <= {us} ORDER BY id LIMIT 100;
        DELETE FROM fencelock_broken WHERE at < {us} - 30 * 86400000000 ORDER BY id LIMIT 100;
    END IF;
    -- By a constant, which makes it a range of the index: notes that stay are not looked at.
    DELETE FROM fencelock_note WHERE expires <= v_now ORDER BY expires LIMIT 1000;
    walk: WHILE v_looked < 100 DO
        SET v_b = NULL, v_last = NULL, v_looked = v_looked + 1;
        SELECT q.b, q.name, q.head INTO v_b, v_name, v_head FROM fencelock_queue AS q WHERE (q.b > p_from OR (q.b = p_from AND q.name > v_after)) AND q.b < v_upto
            AND EXISTS (SELECT 1 FROM fencelock_place AS p LEFT JOIN fencelock_session AS s ON s.id = p.session
                WHERE p.b = q.b AND p.name = q.name AND p.seq >= q.head AND COALESCE(s.expires, 0) <= {us})
            ORDER BY q.b, q.name LIMIT 1;
        IF v_b IS NULL THEN
            LEAVE walk;
        END IF;
        SET p_from = v_b, v_after = v_name;
        {begin}
            SELECT last INTO v_last FROM fencelock_bucket WHERE b = v_b FOR UPDATE SKIP LOCKED;
            IF v_last IS NOT NULL THEN
                CALL fencelock__clear(v_b, v_name, v_head, 9223372036854775807, v_cleared);
                CALL fencelock__settle(v_b, v_name, NULL, v_rung, v_told);
            END IF;
        {commit}
        SET v_rung = '';
    END WHILE;
    SELECT v_upto % 4096;
END
//

-- For users' own transactions, of any isolation level and time zone. -----------------------------------------------------------------------

-- Fails, and rolls the transaction back, unless this grant is current and no later than the transaction's snapshot: earlier writes would be
-- missing there. Keeps the grant until the transaction ends: a release, an expiry and a break wait. The token is that of the guard.
CREATE PROCEDURE fencelock_hold(p_name VARBINARY(512), p_token DECIMAL(38,18)) SQL SECURITY DEFINER READS SQL DATA
BEGIN
    -- No grant has the number that a fraction would be rounded to.
    DECLARE v_token BIGINT DEFAULT IF(p_token = TRUNCATE(p_token, 0), p_token, NULL);
    DECLARE v_held, v_seen BIGINT;
    DECLARE v_b SMALLINT DEFAULT CONV(LEFT(SHA2(p_name, 256), 3), 16, 10);
    DECLARE v_why VARCHAR(128) DEFAULT 'acquire first, begin then: the lock was granted after the snapshot of this transaction';
    -- The row changed after the snapshot (innodb_snapshot_isolation).
    DECLARE EXIT HANDLER FOR 1020 BEGIN ROLLBACK; SIGNAL SQLSTATE 'FL001' SET MESSAGE_TEXT = v_why; END;
    -- MySQL has no such variable, and reads a comment.
    /*M! IF NOT @@in_transaction AND @@autocommit THEN
        SIGNAL SQLSTATE '25P01' SET MESSAGE_TEXT = 'begin a transaction first: without one, hold keeps nothing';
    END IF; */
    SELECT COUNT(*) INTO v_held FROM fencelock_place WHERE b = v_b AND name = p_name AND seq = v_token AND granted LOCK IN SHARE MODE;
    SELECT COUNT(*) INTO v_seen FROM fencelock_place WHERE b = v_b AND name = p_name AND seq = v_token AND granted;
    SET v_why = CASE WHEN v_held + v_seen IS NULL THEN 'the request was interrupted' WHEN v_held = 0 THEN 'the lock is not held under this token: it was released, broken or lost' ELSE v_why END;
    IF NOT COALESCE(v_held AND v_seen, FALSE) THEN
        -- Else the gap where the row would be, or the row of a waiter, stays locked until the transaction ends.
        ROLLBACK;
        SIGNAL SQLSTATE 'FL001' SET MESSAGE_TEXT = v_why;
    END IF;
END
//

-- Refuses a token that is lower than one that was seen for this resource, and remembers the highest.
CREATE PROCEDURE fencelock_fence(p_resource VARBINARY(512), p_token DECIMAL(38,18)) SQL SECURITY DEFINER
BEGIN
    DECLARE v_token BIGINT;
    IF p_token = TRUNCATE(p_token, 0) THEN
        INSERT INTO fencelock_fenced VALUES (p_resource, p_token) ON DUPLICATE KEY UPDATE token = GREATEST(token, p_token);
        SELECT token INTO v_token FROM fencelock_fenced WHERE resource = p_resource FOR UPDATE;
    END IF;
    IF NOT (v_token <=> p_token) OR p_token IS NULL THEN
        SIGNAL SQLSTATE 'FL002' SET MESSAGE_TEXT = 'the token is no whole number, or older than one that was seen for this resource';
    END IF;
END
//

-- Called by triggers of tables that keep the token of their last write in a column: BEFORE UPDATE ON … FOR EACH ROW
-- CALL fencelock_fenced(OLD.token, NEW.token). MySQL has no trigger that takes the name of a column.
CREATE PROCEDURE fencelock_fenced(p_before BIGINT, p_after BIGINT) SQL SECURITY DEFINER NO SQL
BEGIN
    IF p_before IS NOT NULL AND (p_after IS NULL OR p_after < p_before) THEN
        SIGNAL SQLSTATE 'FL002' SET MESSAGE_TEXT = 'the token is older than that by which the row was written';
    END IF;
END
//

-- The version of the layout, and how many of its tables do not keep transactions. Made last: where it is, everything is.
CREATE PROCEDURE fencelock_version() SQL SECURITY DEFINER READS SQL DATA
BEGIN
    SELECT version, (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> 'InnoDB'
        AND table_name IN ('fencelock_layout', 'fencelock_bucket', 'fencelock_queue', 'fencelock_place', 'fencelock_session', 'fencelock_note')) FROM fencelock_layout WHERE one = 1;
END
//

-- As it was: that mode may say that a GRANT creates no account.
SET SESSION sql_mode = @fencelock_mode
//
