-- The objects that a role with CREATE on `public` can plant there against roles whose path has it: operators, functions, tables and types by
-- the names of the server's own. Each of them, if it runs, counts in the sequence `public.planted`, and fails.
SET search_path = pg_catalog;
CREATE SEQUENCE public.planted;
GRANT ALL ON SEQUENCE public.planted TO PUBLIC;
CREATE FUNCTION public.planted_check() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.nextval('public.planted');
    RAISE EXCEPTION 'planted';
END $$;
CREATE PROCEDURE public.plant(statement text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    -- A thing that cannot be planted, or is there already.
END $$;
DO $do$
DECLARE
    body text := $$ LANGUAGE plpgsql AS 'BEGIN PERFORM pg_catalog.nextval(''public.planted''); RAISE EXCEPTION ''planted''; END' $$;
    types text[] := '{text,varchar,bpchar,name,"char",oid,regclass,regnamespace,regrole,regtype,int2,int4,int8,numeric,float8,bool,timestamptz,timestamp,interval,uuid,text[],int8[],oid[]}';
    symbols text[] := '{=,<>,<,<=,>,>=,~,||,+,-,*}';
    it record;
BEGIN
    FOR it IN SELECT l, r FROM unnest(types) AS l, unnest(types) AS r LOOP
        CALL public.plant(format('CREATE FUNCTION public.planted_op(%s, %s) RETURNS boolean %s', it.l, it.r, body));
        FOR i IN 1 .. cardinality(symbols) LOOP
            CALL public.plant(format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.planted_op)', symbols[i], it.l, it.r));
        END LOOP;
    END LOOP;
    FOR it IN SELECT p.proname, p.proretset, format_type(p.prorettype, NULL) AS result,
            coalesce((SELECT string_agg(format_type(t, NULL), ', ' ORDER BY n) FROM unnest(p.proargtypes) WITH ORDINALITY AS u (t, n)), '') AS arguments
        FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' LOOP
        CALL public.plant(format('CREATE FUNCTION public.%I(%s) RETURNS %s %s %s', it.proname, it.arguments,
            CASE WHEN it.proretset THEN 'SETOF' END, it.result, body));
        IF it.arguments ~ 'any(compatible)?array|anyelement' THEN
            FOR i IN 1 .. cardinality(types) LOOP
                CALL public.plant(format('CREATE FUNCTION public.%I(%s) RETURNS %s %s', it.proname,
                    regexp_replace(regexp_replace(it.arguments, 'any(compatible)?array', types[i] || '[]', 'g'), 'any(compatible|element)', types[i], 'g'),
                    types[i], body));
            END LOOP;
        END IF;
    END LOOP;
    FOR it IN SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') LOOP
        CALL public.plant(format('CREATE TABLE public.%I (planted integer)', it.relname));
    END LOOP;
    FOR it IN SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typcategory <> 'A' LOOP
        CALL public.plant(format('CREATE DOMAIN public.%I AS pg_catalog.%I CHECK (public.planted_check())', it.typname, it.typname));
    END LOOP;
END $do$;
