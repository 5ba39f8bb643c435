//! A lock table of another program: its statements, and the check of an existing table.

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::super::connection::Connection;
use super::super::setup::literal;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::call::strange;
use crate::kit::lock_table::{Column, Fit, KnownTable, TableKind, Words};

pub(in super::super) type Table = KnownTable<Statements>;

#[derive(Debug)]
pub(in super::super) struct Statements {
    table: String,
    pub(super) take: String,
    pub(super) renew: String,
    pub(super) leave: String,
    pub(super) show: String,
    pub(super) names: String,
    /// The collation that may take several names for one key; an empty one ignores blanks at the end.
    pub(super) collation: Option<String>,
    pub(super) longest: Option<usize>,
}

const NO_TIME: &str = "the column of the end is a timestamp";
const NO_ZONE: &str = "the column of the end has no time zone, and a session of another zone reads another time: set `zone` to the zone of the other programs' sessions, which a role, a database or a driver may have set";
const SHIFTED: &str = "ShedLock writes UTC into this column, which is a `timestamp` in its table: in a timestamptz each session reads another time";
const A_ZONE: &str = "the column of the end has a time zone: leave the option `zone` out";
const UNLOGGED: &str = "the lock table is unlogged: a crash of the server empties it, without notice to the holders. ALTER TABLE … SET LOGGED changes that";
const RULE: &str = "a rule of the lock table does something else INSTEAD of a write, so a lock could be granted twice or never end: DROP RULE";
const NO_RIGHTS: &str = "the user lacks rights on the lock table";
const PLANTED: &str = "the lock table belongs to a role that owns neither its schema nor the database, and its triggers would run with this user's rights: name it with its schema, as in table=app.distributed_lock, if that role is trusted";

const WORDS: Words = Words {
    quoted,
    ignores_case: false,
    texts: &["text", "varchar", "bpchar"],
    holders: &["uuid"],
    no_text: "the columns of key and holder are text or varchar, the holder's may be uuid",
};

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn read(row: &Row) -> Result<Column, tokio_postgres::Error> {
    // The type's modifier: for text 4 more than its length, for times the digits of the second's fraction; -1 for none.
    let modifier: i32 = row.try_get(2)?;
    Ok(Column {
        name: row.try_get(0)?,
        kind: row.try_get(1)?,
        longest: (modifier >= 4).then_some(i64::from(modifier) - 4),
        digits: u32::try_from(modifier).unwrap_or(6),
        unique: row.try_get(3)?,
        collation: row.try_get(9)?,
    })
}

impl Table {
    pub(in super::super) fn ddl(&self) -> String {
        let tutorial = ["varchar(512)", "varchar(64)", "timestamp with time zone NOT NULL"];
        WORDS.ddl(&self.of, tutorial, ["varchar(64)", "varchar(255)", "timestamp"], ";\n")
    }

    pub(in super::super) fn grant(&self, role: &str) -> String {
        format!("GRANT {} ON {} TO {};\n", self.of.rights(), WORDS.table(&self.of), quoted(role))
    }

    pub(super) fn granted(&self) -> String {
        let (table, rights) = (literal(&WORDS.table(&self.of)), self.of.rights());
        format!(
            "SELECT pg_catalog.bool_and(pg_catalog.has_table_privilege({{role}}, {table}, r)) FROM pg_catalog.unnest(pg_catalog.string_to_array('{rights}', ', ')) AS r"
        )
    }

    /// The table with its schema by the role's own path, and whether the table is there. Only this statement runs under that path.
    pub(super) async fn located(&self, connection: &Connection) -> Result<(Self, bool)> {
        let asked = format!(
            "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('fencelock.path'), true); \
             SELECT pg_catalog.current_schema(), (SELECT n.nspname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n \
             ON n.oid OPERATOR(pg_catalog.=) c.relnamespace WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass({}))",
            literal(&WORDS.table(&self.of))
        );
        let rows = connection.simple("connect", &asked).await?;
        let schema = |column| rows.last().and_then(|row| row.get(column)).map(str::to_owned);
        let (made_in, found_in) = (schema(0), schema(1));
        let is_there = found_in.is_some();
        let mut of = self.of.clone();
        if let (1, Some(schema)) = (of.name.len(), found_in.or(made_in)) {
            of.name.insert(0, schema);
        }
        Ok((Self::from(of), is_there))
    }

    pub(super) async fn look_at(&self, connection: &Connection, only_looks: bool) -> Result<()> {
        let table = match self.statements.get() {
            Some(known) => known.table.clone(),
            None => WORDS.table(&self.located(connection).await?.0.of),
        };
        let asked = "SELECT a.attname::text, t.typname::text, a.atttypmod, (SELECT min(i.indexrelid::regclass::text) FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid AND i.indisunique \
             AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum \
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_collation AS o WHERE o.oid = i.indcollation[0] AND o.oid <> a.attcollation AND NOT o.collisdeterministic)), \
             (SELECT min(k.oid::regclass::text) FROM pg_catalog.pg_class AS k WHERE k.relpersistence = 'u' AND (k.oid = c.oid OR k.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))), has_table_privilege(c.oid, 'SELECT'), (SELECT bool_and(has_table_privilege(c.oid, r)) FROM unnest($2::text[]) AS r), current_setting('TimeZone'), \
             EXISTS (SELECT FROM pg_catalog.pg_roles AS r, pg_catalog.pg_namespace AS n, pg_catalog.pg_database AS d WHERE r.oid = c.relowner AND n.oid = c.relnamespace \
             AND d.datname = current_database() AND (r.rolname = current_user OR r.rolsuper OR r.oid IN (n.nspowner, d.datdba))), \
             COALESCE((SELECT o.collname::text FROM pg_catalog.pg_collation AS o WHERE o.oid = a.attcollation AND NOT o.collisdeterministic), \
             CASE t.typname WHEN 'bpchar' THEN '' END), \
             (SELECT min(w.rulename::text) FROM pg_catalog.pg_rewrite AS w WHERE w.ev_class = c.oid AND w.is_instead) \
             FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
             JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p')";
        let rights: Vec<&str> = self.of.rights().split(", ").collect();
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&table, Type::TEXT), (&rights, Type::TEXT_ARRAY)];
        let rows = connection.query("connect", asked, &parameters, &|_| None).await?;
        let met = self.judge(&rows, only_looks, table)?;
        if let Some(zone) = &self.of.zone {
            // AT TIME ZONE reads a name that is also an abbreviation as the abbreviation: CET has no summer time there.
            let known = "SELECT EXISTS (SELECT FROM pg_catalog.pg_timezone_names WHERE name = $1) AND ($1 IN ('UTC', 'GMT') OR NOT EXISTS (SELECT FROM pg_catalog.pg_timezone_abbrevs WHERE abbrev = upper($1)))";
            let rows = connection.query("connect", known, &[(zone, Type::TEXT)], &|_| None).await?;
            if rows.first().and_then(|row| row.try_get(0).ok()) != Some(true) {
                let message = "the server's view pg_timezone_names lists no such zone, or its view pg_timezone_abbrevs has the name, too: name the zone by its city, as in Europe/Berlin";
                return Err(Error::new(ErrorKind::Config, "connect", message).with("zone", zone));
            }
        }
        // Each connection reads the table, with the same result: the first one counts.
        let _ = self.statements.set(met);
        Ok(())
    }

    fn judge(&self, rows: &[Row], only_looks: bool, table: String) -> Result<Statements> {
        let first = rows.first().ok_or_else(|| self.of.missing(self.ddl().trim_end()))?;
        let is = |column: usize| first.try_get::<_, bool>(column).map_err(|_| strange("connect"));
        for (column, of, message) in [(4, "unlogged", UNLOGGED), (10, "rule", RULE)] {
            if let Some(name) = first.try_get::<_, Option<&str>>(column).map_err(|_| strange("connect"))? {
                return Err(self.of.refuse(ErrorKind::Config, message).with(of, name));
            }
        }
        if self.of.name.len() == 1 && !is(8)? {
            return Err(self.of.refuse(ErrorKind::Denied, PLANTED));
        }
        if !is(if only_looks { 5 } else { 6 })? {
            let needed = if only_looks { "SELECT" } else { self.of.rights() };
            return Err(self.of.refuse(ErrorKind::Denied, NO_RIGHTS).with("GRANT", needed));
        }
        let there: Vec<Column> = rows.iter().map(read).collect::<Result<_, _>>().map_err(|_| strange("connect"))?;
        let fit = self.of.fit(&there, &WORDS)?;
        let zone: &str = first.try_get(7).map_err(|_| strange("connect"))?;
        let now = |time: &Column| {
            let refuse = |message| {
                self.of.refuse_column(time, message).with("sessions of this role have", format!("zone={zone}"))
            };
            self.now(time).map_err(refuse)
        };
        fit.began.map(now).transpose()?;
        Ok(self.statements(table, &fit, &now(fit.end)?))
    }

    fn now(&self, end: &Column) -> Result<String, &'static str> {
        match (&self.of.kind, &*end.kind, &self.of.zone) {
            (TableKind::Tutorial, "timestamptz", None) => Ok("clock_timestamp()".to_owned()),
            (TableKind::Tutorial, "timestamptz", Some(_)) => Err(A_ZONE),
            (TableKind::Tutorial, "timestamp", Some(zone)) => Ok(format!("(clock_timestamp() AT TIME ZONE '{zone}')")),
            (TableKind::Tutorial, "timestamp", None) => Err(NO_ZONE),
            (TableKind::ShedLock { .. }, "timestamp", _) => Ok("timezone('utc', clock_timestamp())".to_owned()),
            (TableKind::ShedLock { .. }, "timestamptz", _) => Err(SHIFTED),
            _ => Err(NO_TIME),
        }
    }

    /// Each statement reads the clock after it has locked the row, also after a long wait.
    fn statements(&self, table: String, fit: &Fit<'_>, now: &str) -> Statements {
        let (key_type, holder_type) = (&fit.key.kind, &fit.holder.kind);
        let unit = fit.end.unit().map(|unit| format!(" + interval '{unit} microseconds'")).unwrap_or_default();
        let until = format!("{now} + $3::float8 * interval '1 millisecond'{unit}");
        let (key, holder, end) = (quoted(&fit.key.name), quoted(&fit.holder.name), quoted(&fit.end.name));
        let left = format!(
            "CASE WHEN isfinite(t.{end}) THEN GREATEST(0, extract(epoch FROM t.{end} - {now}) * 1000)::bigint END"
        );
        let held = format!("(t.{end} > {now}) IS NOT FALSE");
        let mine = format!("t.{key} = w.k::{key_type} AND t.{holder}::text = w.v");
        let began = fit.began.map(|began| quoted(&began.name)).unwrap_or_default();
        let (also, is, set) = match self.of.kind {
            TableKind::Tutorial => Default::default(),
            TableKind::ShedLock { .. } => {
                (format!(", {began}"), format!(", {now}"), format!(", {began} = EXCLUDED.{began}"))
            }
        };
        let take = format!(
            "WITH taken AS (INSERT INTO {table} AS t ({key}, {holder}, {end}{also}) VALUES ($1::{key_type}, $2::{holder_type}, {until}{is}) \
             ON CONFLICT ({key}) DO UPDATE SET {holder} = EXCLUDED.{holder}, {end} = EXCLUDED.{end}{set} WHERE t.{end} <= {now} OR t.{holder}::text = $2 RETURNING 1) \
             SELECT EXISTS (SELECT FROM taken), (SELECT {left} FROM {table} AS t WHERE t.{key} = $1::{key_type})"
        );
        let renew = format!(
            "UPDATE {table} AS t SET {end} = {until} FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (k, v, i) \
             WHERE {mine} AND t.{end} > {now} RETURNING w.i"
        );
        let leave = match self.of.kind {
            TableKind::Tutorial => format!(
                "DELETE FROM {table} AS t USING unnest($1::text[], $2::text[]) AS w (k, v) WHERE {mine} RETURNING 1"
            ),
            TableKind::ShedLock { at_least } => format!(
                "UPDATE {table} AS t SET {end} = GREATEST({now}, t.{began} + interval '{} milliseconds') FROM unnest($1::text[], $2::text[]) AS w (k, v) \
                 WHERE {mine} AND t.{end} > {now} RETURNING 1",
                at_least.as_millis()
            ),
        };
        let show =
            format!("SELECT t.{holder}::text, {left} FROM {table} AS t WHERE t.{key} = $1::{key_type} AND {held}");
        let names = format!(
            "SELECT t.{key}::text, {held} FROM {table} AS t WHERE t.{key} > $1::{key_type} ORDER BY t.{key} LIMIT $2"
        );
        let (collation, longest) = (fit.key.collation.clone(), fit.key.longest_key());
        Statements { table, take, renew, leave, show, names, collation, longest }
    }
}
