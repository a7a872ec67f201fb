--
-- PostgreSQL database dump
--



SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: alembic_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);


--
-- Name: applied_settings; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.applied_settings (
    id bigint NOT NULL,
    device_id character varying NOT NULL,
    setting json NOT NULL,
    level character varying NOT NULL,
    at timestamp with time zone NOT NULL,
    study_id character varying NOT NULL,
    revision bigint NOT NULL
);


--
-- Name: applied_settings_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.applied_settings_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: applied_settings_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.applied_settings_id_seq OWNED BY public.applied_settings.id;


--
-- Name: audit; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.audit (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    who character varying NOT NULL,
    role character varying NOT NULL,
    address character varying NOT NULL,
    method character varying NOT NULL,
    path character varying NOT NULL,
    status bigint NOT NULL
);


--
-- Name: audit_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: audit_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.audit_id_seq OWNED BY public.audit.id;


--
-- Name: budget_groups; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.budget_groups (
    name character varying NOT NULL,
    revision bigint NOT NULL,
    document json NOT NULL
);


--
-- Name: budget_members; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.budget_members (
    device_id character varying NOT NULL,
    group_name character varying NOT NULL,
    revision bigint NOT NULL,
    document json NOT NULL
);


--
-- Name: deliveries; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.deliveries (
    destination character varying NOT NULL,
    event bigint NOT NULL,
    attempts bigint NOT NULL,
    next_at timestamp with time zone,
    why character varying NOT NULL,
    given_up bigint NOT NULL
);


--
-- Name: devices; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.devices (
    id character varying NOT NULL,
    kind character varying NOT NULL,
    board character varying NOT NULL,
    driver character varying NOT NULL,
    agent character varying NOT NULL,
    workload character varying NOT NULL,
    workload_version character varying NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    description json NOT NULL,
    unable character varying DEFAULT ''::character varying NOT NULL
);


--
-- Name: estimates; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.estimates (
    measurement_id bigint NOT NULL,
    metric character varying NOT NULL,
    "position" bigint NOT NULL,
    mean double precision NOT NULL,
    stderr double precision NOT NULL,
    n bigint NOT NULL,
    low double precision,
    high double precision,
    origin character varying NOT NULL,
    scope character varying NOT NULL
);


--
-- Name: events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.events (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    kind character varying NOT NULL,
    text character varying NOT NULL,
    study_id character varying NOT NULL,
    device_id character varying NOT NULL
);


--
-- Name: events_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: events_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.events_id_seq OWNED BY public.events.id;


--
-- Name: leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leases (
    device_id character varying NOT NULL,
    token bigint NOT NULL,
    nonce character varying NOT NULL,
    study_id character varying,
    trial_number bigint,
    attempt bigint NOT NULL,
    agent character varying NOT NULL,
    expires_at timestamp with time zone NOT NULL
);


--
-- Name: measurements; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.measurements (
    id bigint NOT NULL,
    study_id character varying,
    trial_number bigint,
    report_id bigint,
    observation_id bigint,
    started_at timestamp with time zone NOT NULL,
    seconds double precision NOT NULL,
    overhead_s double precision NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    utilisation double precision,
    context json NOT NULL,
    throttled json NOT NULL,
    foreign_share double precision NOT NULL,
    sources json NOT NULL,
    CONSTRAINT ck_measurements_one_owner CHECK ((((
CASE
    WHEN (trial_number IS NULL) THEN 0
    ELSE 1
END +
CASE
    WHEN (report_id IS NULL) THEN 0
    ELSE 1
END) +
CASE
    WHEN (observation_id IS NULL) THEN 0
    ELSE 1
END) = 1)),
    CONSTRAINT ck_measurements_trial_named CHECK (((study_id IS NULL) = (trial_number IS NULL)))
);


--
-- Name: measurements_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.measurements_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: measurements_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.measurements_id_seq OWNED BY public.measurements.id;


--
-- Name: observations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.observations (
    id bigint NOT NULL,
    study_id character varying NOT NULL,
    device_id character varying NOT NULL,
    started_at timestamp with time zone NOT NULL,
    setting json NOT NULL,
    at timestamp with time zone NOT NULL,
    speaks_s double precision
);


--
-- Name: observations_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.observations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: observations_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.observations_id_seq OWNED BY public.observations.id;


--
-- Name: observed_windows; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.observed_windows (
    id bigint NOT NULL,
    device_id character varying NOT NULL,
    started_at timestamp with time zone NOT NULL,
    at timestamp with time zone NOT NULL,
    document json NOT NULL
);


--
-- Name: observed_windows_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.observed_windows_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: observed_windows_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.observed_windows_id_seq OWNED BY public.observed_windows.id;


--
-- Name: releases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.releases (
    device_id character varying NOT NULL,
    at timestamp with time zone NOT NULL,
    who character varying NOT NULL,
    why character varying NOT NULL,
    restored boolean NOT NULL
);


--
-- Name: replicas; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.replicas (
    id character varying NOT NULL,
    host character varying NOT NULL,
    version character varying NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    leads boolean NOT NULL,
    bus_lag_s double precision,
    agents json NOT NULL,
    token_mark character varying NOT NULL,
    cpu_s double precision NOT NULL,
    memory_bytes bigint NOT NULL
);


--
-- Name: reports; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.reports (
    id bigint NOT NULL,
    study_id character varying NOT NULL,
    trial_number bigint NOT NULL,
    device_id character varying NOT NULL,
    attempt bigint NOT NULL,
    token bigint NOT NULL,
    nonce character varying NOT NULL,
    state character varying NOT NULL,
    broke character varying,
    reason character varying NOT NULL,
    received_at timestamp with time zone NOT NULL,
    late boolean NOT NULL
);


--
-- Name: reports_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.reports_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: reports_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.reports_id_seq OWNED BY public.reports.id;


--
-- Name: stop_back; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.stop_back (
    device_id character varying NOT NULL
);


--
-- Name: stops; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.stops (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    who character varying NOT NULL,
    why character varying NOT NULL
);


--
-- Name: studies; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.studies (
    id character varying NOT NULL,
    workload character varying NOT NULL,
    phase character varying NOT NULL,
    revision bigint NOT NULL,
    last_trial bigint NOT NULL,
    created_at timestamp with time zone NOT NULL
);


--
-- Name: study_devices; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.study_devices (
    study_id character varying NOT NULL,
    device_id character varying NOT NULL,
    active boolean NOT NULL
);


--
-- Name: study_revisions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.study_revisions (
    study_id character varying NOT NULL,
    revision bigint NOT NULL,
    document json NOT NULL,
    who character varying NOT NULL,
    why character varying NOT NULL,
    at timestamp with time zone NOT NULL
);


--
-- Name: tokens; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tokens (
    name character varying NOT NULL,
    role character varying NOT NULL,
    digest character varying NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    used_at timestamp with time zone,
    revoked_at timestamp with time zone
);


--
-- Name: trial_states; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.trial_states (
    id bigint NOT NULL,
    study_id character varying NOT NULL,
    trial_number bigint NOT NULL,
    state character varying NOT NULL,
    attempt bigint NOT NULL,
    at timestamp with time zone NOT NULL
);


--
-- Name: trial_states_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.trial_states_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: trial_states_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.trial_states_id_seq OWNED BY public.trial_states.id;


--
-- Name: trials; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.trials (
    study_id character varying NOT NULL,
    number bigint NOT NULL,
    setting json NOT NULL,
    phase character varying NOT NULL,
    context json NOT NULL,
    state character varying NOT NULL,
    attempt bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    why character varying NOT NULL,
    broke character varying,
    reason character varying NOT NULL,
    device_id character varying,
    plan json
);


--
-- Name: window_samples; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.window_samples (
    measurement_id bigint NOT NULL,
    document bytea NOT NULL
);


--
-- Name: workload_versions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.workload_versions (
    workload character varying NOT NULL,
    version character varying NOT NULL,
    first_seen_at timestamp with time zone NOT NULL
);


--
-- Name: write_checks; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.write_checks (
    id bigint NOT NULL,
    times bigint NOT NULL
);


--
-- Name: write_checks_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.write_checks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: write_checks_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.write_checks_id_seq OWNED BY public.write_checks.id;


--
-- Name: applied_settings id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.applied_settings ALTER COLUMN id SET DEFAULT nextval('public.applied_settings_id_seq'::regclass);


--
-- Name: audit id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit ALTER COLUMN id SET DEFAULT nextval('public.audit_id_seq'::regclass);


--
-- Name: events id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);


--
-- Name: measurements id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements ALTER COLUMN id SET DEFAULT nextval('public.measurements_id_seq'::regclass);


--
-- Name: observations id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.observations ALTER COLUMN id SET DEFAULT nextval('public.observations_id_seq'::regclass);


--
-- Name: observed_windows id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.observed_windows ALTER COLUMN id SET DEFAULT nextval('public.observed_windows_id_seq'::regclass);


--
-- Name: reports id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reports ALTER COLUMN id SET DEFAULT nextval('public.reports_id_seq'::regclass);


--
-- Name: trial_states id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.trial_states ALTER COLUMN id SET DEFAULT nextval('public.trial_states_id_seq'::regclass);


--
-- Name: write_checks id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.write_checks ALTER COLUMN id SET DEFAULT nextval('public.write_checks_id_seq'::regclass);


--
-- Data for Name: alembic_version; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.alembic_version (version_num) FROM stdin;
0011
\.


--
-- Data for Name: applied_settings; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.applied_settings (id, device_id, setting, level, at, study_id, revision) FROM stdin;
1	sim@edge	{"gpu.clock_mhz": 1000, "batch_size": 1}	original	2026-01-01 12:00:00+00		0
2	sim@edge	{"gpu.clock_mhz": 1000, "batch_size": 1}	trial	2026-01-01 12:04:00+00		0
3	sim@edge	{"gpu.clock_mhz": 600, "batch_size": 1}	hold	2026-01-01 12:32:00+00	0a1b2c3d	7
\.


--
-- Data for Name: audit; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.audit (id, at, who, role, address, method, path, status) FROM stdin;
1	2026-01-01 12:44:00+00	ann	operator	10.0.0.7	POST	/v1/studies	201
\.


--
-- Data for Name: budget_groups; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.budget_groups (name, revision, document) FROM stdin;
rack	1	{"series": "", "reboot_after_s": 90.0, "measure": true, "reserve": 0.1, "name": "rack", "select": {"rack": ["b*"], "id": ["sim*"]}, "watts": {"name": "by hour", "constant": null, "rows": [{"value": 500.0, "hours": "8-20", "days": ["mon"]}, {"value": 700.0, "hours": "0-24", "days": []}], "time_zone": "UTC", "points": []}, "priorities": {"sim3*": 2}, "declared": false, "events": [{"watts": null, "share": 0.75, "effective_at": "2026-01-01T12:50:00Z", "expires_at": "2026-01-01T13:50:00Z", "who": "utility", "why": "", "id": ""}], "revision": 1}
clocks	1	{"series": "", "reboot_after_s": 90.0, "measure": true, "reserve": 0.2, "name": "clocks", "select": {"rack": ["b*"], "id": ["sim*"]}, "watts": {"name": "by hour", "constant": null, "rows": [{"value": 500.0, "hours": "8-20", "days": ["mon"]}, {"value": 700.0, "hours": "0-24", "days": []}], "time_zone": "UTC", "points": []}, "priorities": {"sim3*": 2}, "declared": true, "events": [{"watts": null, "share": 0.75, "effective_at": "2026-01-01T12:50:00Z", "expires_at": "2026-01-01T13:50:00Z", "who": "utility", "why": "", "id": "e-1"}], "revision": 1}
\.


--
-- Data for Name: budget_members; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.budget_members (device_id, group_name, revision, document) FROM stdin;
sim3@edge	rack	1	{"device": "sim3@edge", "knobs": [{"name": "gpu.power_limit_w", "floor": 100.0, "floor_w": 100.0, "default_w": 350.0, "default": null}], "power": {"floor_w": 100.0, "default_w": 350.0, "reboot_after_s": 90.0, "heard_s": 1.5, "member": false, "acknowledged": {"revision": 0, "steps": []}, "sent": [{"revision": 3, "steps": [{"at_s": 2.0, "cap_w": 120.0, "at_most": {"gpu.power_limit_w": 120.0}}]}]}, "group": "rack", "sent_s": null, "released": false, "admitted": "", "outside": "", "ceilings": [], "exceeded": [], "revision": 1}
sim5@edge	clocks	1	{"device": "sim5@edge", "knobs": [{"name": "gpu.clock_mhz", "floor": 600.0, "floor_w": null, "default_w": 400.0, "default": 1410.0}], "power": {"floor_w": 100.0, "default_w": 350.0, "reboot_after_s": 90.0, "heard_s": 1.5, "member": false, "acknowledged": {"revision": 0, "steps": []}, "sent": [{"revision": 3, "steps": [{"at_s": 2.0, "cap_w": 120.0, "at_most": {"gpu.power_limit_w": 120.0}}]}]}, "group": "clocks", "sent_s": null, "released": false, "admitted": "clocks", "outside": "", "ceilings": [{"at_most": {"gpu.clock_mhz": 1000.0}, "watts": 250.5}], "exceeded": [{"at_most": {"gpu.clock_mhz": 1000.0}, "watts": 260.0}], "revision": 1}
sim4@edge		1	{"device": "sim4@edge", "knobs": [{"name": "gpu.power_limit_w", "floor": 100.0, "floor_w": 100.0, "default_w": 350.0, "default": null}], "power": {"floor_w": 100.0, "default_w": 350.0, "reboot_after_s": 90.0, "heard_s": 1.5, "member": false, "acknowledged": {"revision": 0, "steps": []}, "sent": [{"revision": 3, "steps": [{"at_s": 2.0, "cap_w": 120.0, "at_most": {"gpu.power_limit_w": 120.0}}]}]}, "group": "", "sent_s": null, "released": false, "admitted": "", "outside": "clocks", "ceilings": [], "exceeded": [], "revision": 1}
\.


--
-- Data for Name: deliveries; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.deliveries (destination, event, attempts, next_at, why, given_up) FROM stdin;
slack	2	3	2026-01-01 13:00:00+00	503	1
\.


--
-- Data for Name: devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.devices (id, kind, board, driver, agent, workload, workload_version, seen_at, description, unable) FROM stdin;
sim@edge	simulated	A100	1	agent@edge	inference	1	2026-01-01 12:00:00+00	{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "", "labels": {}, "observed": false}	
sim2@edge	simulated	A100	1	agent@edge	inference	1	2026-01-01 12:00:00+00	{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "", "labels": {}, "observed": false}	
sim3@edge	simulated	A100	1	agent@edge	inference	1	2026-01-01 12:00:00+00	{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "2 MPS clients", "labels": {"rack": "b1", "pool": "a100"}, "observed": false}	
sim4@edge	simulated	A100	1	agent@edge	inference	1	2026-01-01 12:00:00+00	{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "2 MPS clients", "labels": {"rack": "b1", "pool": "a100"}, "observed": false}	the disk is full
sim5@edge	simulated	A100	1	agent@edge	inference	1	2026-01-01 12:00:00+00	{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "", "labels": {}, "observed": false}	
watched@edge	simulated	A100	1	agent@edge	inference	1	2026-01-01 12:00:00+00	{"space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "metrics": [{"name": "energy_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "J", "better": "less", "kind": "energy", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "latency_p99_ms", "origin": "simulated", "scope": "board", "quantity": {"unit": "ms", "better": "less", "kind": "time", "over_devices": "most", "over_windows": "tail", "signed": false}}, {"name": "power_w", "origin": "simulated", "scope": "board", "quantity": {"unit": "W", "better": "less", "kind": "power", "over_devices": "sum", "over_windows": "mean", "signed": false}}, {"name": "throughput_per_s", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/s", "better": "more", "kind": "rate", "over_devices": "least", "over_windows": "mean", "signed": false}}, {"name": "tokens_per_j", "origin": "simulated", "scope": "board", "quantity": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}], "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "cannot": {"fan_rpm": "it has no fan"}, "versions": {"jouletune": "0.1.0"}, "shared": "", "labels": {}, "observed": true}	
\.


--
-- Data for Name: estimates; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.estimates (measurement_id, metric, "position", mean, stderr, n, low, high, origin, scope) FROM stdin;
1	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
1	latency_p99_ms	1	100	1	500	98.35514637304853	101.64485362695147	measured	board
1	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
1	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
2	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
2	latency_p99_ms	1	100	1	500	98.35514637304853	101.64485362695147	measured	board
2	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
2	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
3	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
3	latency_p99_ms	1	100	1	500	98.35514637304853	101.64485362695147	measured	board
3	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
3	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
4	energy_j	0	10.1	0.10099999999999999	10	9.9338697836779	10.266130216322098	measured	board
4	latency_p99_ms	1	101	1.01	500	99.33869783677902	102.66130216322098	measured	board
4	power_w	2	505	5.05	10	496.69348918389505	513.306510816105	measured	board
4	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
5	energy_j	0	10.1	0.10099999999999999	10	9.9338697836779	10.266130216322098	measured	board
5	latency_p99_ms	1	101	1.01	500	99.33869783677902	102.66130216322098	measured	board
5	power_w	2	505	5.05	10	496.69348918389505	513.306510816105	measured	board
5	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
6	energy_j	0	8	0.08	10	7.868411709843882	8.131588290156119	measured	board
6	latency_p99_ms	1	105	1.05	500	103.27290369170096	106.72709630829904	measured	board
6	power_w	2	400	4	10	393.4205854921941	406.5794145078059	measured	board
6	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
7	energy_j	0	8	0.08	10	7.868411709843882	8.131588290156119	measured	board
7	latency_p99_ms	1	105	1.05	500	103.27290369170096	106.72709630829904	measured	board
7	power_w	2	400	4	10	393.4205854921941	406.5794145078059	measured	board
7	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
8	energy_j	0	6	0.06	10	5.901308782382912	6.098691217617088	measured	board
8	latency_p99_ms	1	110	1.1	500	108.19066101035338	111.80933898964662	measured	board
8	power_w	2	300	3	10	295.0654391191456	304.9345608808544	measured	board
8	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
9	energy_j	0	6	0.06	10	5.901308782382912	6.098691217617088	measured	board
9	latency_p99_ms	1	110	1.1	500	108.19066101035338	111.80933898964662	measured	board
9	power_w	2	300	3	10	295.0654391191456	304.9345608808544	measured	board
9	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
10	energy_j	0	5	0.05	10	4.917757318652426	5.082242681347574	measured	board
10	latency_p99_ms	1	200	2	500	196.71029274609705	203.28970725390295	measured	board
10	power_w	2	250	2.5	10	245.8878659326213	254.1121340673787	measured	board
10	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
11	energy_j	0	5	0.05	10	4.917757318652426	5.082242681347574	measured	board
11	latency_p99_ms	1	200	2	500	196.71029274609705	203.28970725390295	measured	board
11	power_w	2	250	2.5	10	245.8878659326213	254.1121340673787	measured	board
11	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
12	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
12	latency_p99_ms	1	101.5	1	40	\N	\N	measured	board
12	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
12	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
13	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
13	latency_p99_ms	1	101.5	1	40	\N	\N	measured	board
13	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
13	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
14	energy_j	0	6.05	0.0605	10	5.950486355569436	6.149513644430564	measured	board
14	latency_p99_ms	1	111	1.11	500	109.17421247408386	112.82578752591614	measured	board
14	power_w	2	302.5	3.025	10	297.5243177784718	307.4756822215282	measured	board
14	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
15	energy_j	0	6.05	0.0605	10	5.950486355569436	6.149513644430564	measured	board
15	latency_p99_ms	1	111	1.11	500	109.17421247408386	112.82578752591614	measured	board
15	power_w	2	302.5	3.025	10	297.5243177784718	307.4756822215282	measured	board
15	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
16	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
16	latency_p99_ms	1	99	0.99	500	97.37159490931805	100.62840509068195	measured	board
16	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
16	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
17	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
17	latency_p99_ms	1	99	0.99	500	97.37159490931805	100.62840509068195	measured	board
17	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
17	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
18	energy_j	0	6	0.06	10	5.901308782382912	6.098691217617088	measured	board
18	latency_p99_ms	1	109	1.09	500	107.20710954662289	110.79289045337711	measured	board
18	power_w	2	300	3	10	295.0654391191456	304.9345608808544	measured	board
18	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
21	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
21	latency_p99_ms	1	100	1	500	98.35514637304853	101.64485362695147	measured	board
21	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
21	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
22	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
22	latency_p99_ms	1	100	1	500	98.35514637304853	101.64485362695147	measured	board
22	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
22	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
23	energy_j	0	8	0.08	10	7.868411709843882	8.131588290156119	measured	board
23	latency_p99_ms	1	104	1.04	500	102.28935222797047	105.71064777202953	measured	board
23	power_w	2	400	4	10	393.4205854921941	406.5794145078059	measured	board
23	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
24	energy_j	0	8	0.08	10	7.868411709843882	8.131588290156119	measured	board
24	latency_p99_ms	1	104	1.04	500	102.28935222797047	105.71064777202953	measured	board
24	power_w	2	400	4	10	393.4205854921941	406.5794145078059	measured	board
24	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
25	energy_j	0	7.5	0.075	10	7.37663597797864	7.62336402202136	measured	board
25	latency_p99_ms	1	103	1.03	500	101.30580076423999	104.69419923576001	measured	board
25	power_w	2	375	3.75	10	368.831798898932	381.168201101068	measured	board
25	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
19	energy_j	0	6	0.06	10	5.901308782382912	6.098691217617088	measured	board
19	latency_p99_ms	1	109	1.09	500	107.20710954662289	110.79289045337711	measured	board
19	power_w	2	300	3	10	295.0654391191456	304.9345608808544	measured	board
19	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
20	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
20	latency_p99_ms	1	100	1	500	98.35514637304853	101.64485362695147	measured	board
20	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
20	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
26	energy_j	0	10	0.1	10	9.835514637304852	10.164485362695148	measured	board
26	latency_p99_ms	1	100	1	500	98.35514637304853	101.64485362695147	measured	board
26	power_w	2	500	5	10	491.7757318652426	508.2242681347574	measured	board
26	throughput_per_s	3	50	0.5	10	49.17757318652426	50.82242681347574	measured	board
\.


--
-- Data for Name: events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.events (id, at, kind, text, study_id, device_id) FROM stdin;
1	2026-01-01 12:00:00+00	tuner_started	version 0.1.0		
2	2026-01-01 12:30:00+00	phase	holding: confirmed	0a1b2c3d	sim@edge
3	2026-01-01 12:50:00+00	stop	stop-all by ann – “fans”		
\.


--
-- Data for Name: leases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.leases (device_id, token, nonce, study_id, trial_number, attempt, agent, expires_at) FROM stdin;
sim@edge	11	abababababababababababababababab	\N	\N	1	agent@edge/start-1	2026-01-01 12:23:00+00
sim2@edge	2	abababababababababababababababab	9f8e7d6c	2	1	agent@edge/start-1	2026-01-01 13:00:00+00
\.


--
-- Data for Name: measurements; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.measurements (id, study_id, trial_number, report_id, observation_id, started_at, seconds, overhead_s, completed, failed, utilisation, context, throttled, foreign_share, sources) FROM stdin;
1	\N	\N	1	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
2	0a1b2c3d	1	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
3	\N	\N	2	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
4	\N	\N	3	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
5	0a1b2c3d	2	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
6	\N	\N	4	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
7	0a1b2c3d	3	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
8	\N	\N	5	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
9	0a1b2c3d	4	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
10	\N	\N	6	\N	2026-01-01 12:00:00+00	1.5	0	75	0	\N	{"requests_in_system": 4.0}	[]	0	{}
11	0a1b2c3d	5	\N	\N	2026-01-01 12:00:00+00	1.5	0	75	0	\N	{"requests_in_system": 4.0}	[]	0	{}
12	\N	\N	10	\N	2026-01-01 12:00:00+00	10	2.5	500	0	\N	{"arrival_rate_per_s": 50.0}	["sw_power_cap"]	0.03125	{"energy_j": "the simulated meter"}
13	0a1b2c3d	9	\N	\N	2026-01-01 12:00:00+00	10	2.5	500	0	\N	{"arrival_rate_per_s": 50.0}	["sw_power_cap"]	0.03125	{"energy_j": "the simulated meter"}
14	\N	\N	11	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
15	0a1b2c3d	10	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
16	\N	\N	12	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
17	0a1b2c3d	11	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
18	\N	\N	\N	1	2026-01-01 12:35:00+00	10	0	500	0	\N	{"requests_in_system": 2.0}	[]	0	{}
19	\N	\N	\N	2	2026-01-01 12:36:00+00	10	0	500	0	\N	{"requests_in_system": 2.0}	[]	0	{}
20	\N	\N	13	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
21	9f8e7d6c	1	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
22	\N	\N	14	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
23	5c5c5c5c	1	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
24	5c5c5c5c	2	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
25	5c5c5c5c	3	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{}
26	7e7e7e7e	1	\N	\N	2026-01-01 12:00:00+00	10	0	500	0	\N	{"arrival_rate_per_s": 50.0}	[]	0	{"one_witness": "energy_j: power is not sampled"}
\.


--
-- Data for Name: observations; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.observations (id, study_id, device_id, started_at, setting, at, speaks_s) FROM stdin;
1	0a1b2c3d	sim@edge	2026-01-01 12:35:00+00	{"gpu.clock_mhz": 600, "batch_size": 1}	2026-01-01 12:35:15+00	\N
2	0a1b2c3d	sim@edge	2026-01-01 12:36:00+00	{"gpu.clock_mhz": 600, "batch_size": 1}	2026-01-01 12:36:15+00	\N
\.


--
-- Data for Name: observed_windows; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.observed_windows (id, device_id, started_at, at, document) FROM stdin;
1	watched@edge	2026-01-01 12:49:00+00	2026-01-01 12:49:15+00	{"estimates": {"energy_j": {"mean": 6.0, "stderr": 0.06, "n": 10, "low": 5.901308782382912, "high": 6.098691217617088, "origin": "measured", "scope": "board"}, "latency_p99_ms": {"mean": 100.0, "stderr": 1.0, "n": 500, "low": 98.35514637304853, "high": 101.64485362695147, "origin": "measured", "scope": "board"}, "power_w": {"mean": 300.0, "stderr": 3.0, "n": 10, "low": 295.0654391191456, "high": 304.9345608808544, "origin": "measured", "scope": "board"}, "throughput_per_s": {"mean": 50.0, "stderr": 0.5, "n": 10, "low": 49.17757318652426, "high": 50.82242681347574, "origin": "measured", "scope": "board"}}, "started_at": "2026-01-01T12:49:00Z", "seconds": 10.0, "overhead_s": 0.0, "load": {"completed": 500, "failed": 0, "utilisation": null}, "context": {"requests_in_system": 2.0}, "throttled": [], "foreign": 0.0, "sources": {}}
2	watched@edge	2026-01-01 12:48:00+00	2026-01-01 12:48:15+00	{"estimates": {"energy_j": {"mean": 6.0, "stderr": 0.06, "n": 10, "low": 5.901308782382912, "high": 6.098691217617088, "origin": "measured", "scope": "board"}, "latency_p99_ms": {"mean": 100.0, "stderr": 1.0, "n": 500, "low": 98.35514637304853, "high": 101.64485362695147, "origin": "measured", "scope": "board"}, "power_w": {"mean": 300.0, "stderr": 3.0, "n": 10, "low": 295.0654391191456, "high": 304.9345608808544, "origin": "measured", "scope": "board"}, "throughput_per_s": {"mean": 50.0, "stderr": 0.5, "n": 10, "low": 49.17757318652426, "high": 50.82242681347574, "origin": "measured", "scope": "board"}}, "started_at": "2026-01-01T12:48:00Z", "seconds": 10.0, "overhead_s": 0.0, "load": {"completed": 500, "failed": 0, "utilisation": null}, "context": {"requests_in_system": 2.0}, "throttled": [], "foreign": 0.0, "sources": {}}
\.


--
-- Data for Name: releases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.releases (device_id, at, who, why, restored) FROM stdin;
sim5@edge	2026-01-01 12:51:00+00	ann	a new fan	t
\.


--
-- Data for Name: replicas; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.replicas (id, host, version, started_at, seen_at, leads, bus_lag_s, agents, token_mark, cpu_s, memory_bytes) FROM stdin;
replica-1	desk	0.2.0	2026-01-01 12:00:00+00	2026-01-01 12:54:00+00	t	0.25	{"1": 2}	ab12	12.5	400000000
\.


--
-- Data for Name: reports; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.reports (id, study_id, trial_number, device_id, attempt, token, nonce, state, broke, reason, received_at, late) FROM stdin;
1	0a1b2c3d	1	sim@edge	1	1	abababababababababababababababab	completed	\N		2026-01-01 12:03:00+00	f
2	0a1b2c3d	1	sim@edge	1	101	abababababababababababababababab	completed	\N	sent again	2026-01-01 12:03:00+00	t
3	0a1b2c3d	2	sim@edge	1	2	abababababababababababababababab	completed	\N		2026-01-01 12:05:00+00	f
4	0a1b2c3d	3	sim@edge	1	3	abababababababababababababababab	completed	\N		2026-01-01 12:07:00+00	f
5	0a1b2c3d	4	sim@edge	1	4	abababababababababababababababab	completed	\N		2026-01-01 12:09:00+00	f
6	0a1b2c3d	5	sim@edge	1	5	abababababababababababababababab	completed	latency_p99_ms <= 120.0	latency_p99_ms was 200, the limit is <= 120	2026-01-01 12:11:00+00	f
7	0a1b2c3d	6	sim@edge	1	6	abababababababababababababababab	failed	\N	no such clock	2026-01-01 12:13:00+00	f
8	0a1b2c3d	7	sim@edge	1	7	abababababababababababababababab	aborted	\N	paused by ann	2026-01-01 12:15:00+00	f
9	0a1b2c3d	8	sim@edge	2	8	abababababababababababababababab	contaminated	\N	foreign	2026-01-01 12:17:00+00	f
10	0a1b2c3d	9	sim@edge	1	9	abababababababababababababababab	inconclusive	\N	40 requests in the longest window	2026-01-01 12:19:00+00	f
11	0a1b2c3d	10	sim@edge	1	10	abababababababababababababababab	completed	\N		2026-01-01 12:21:00+00	f
12	0a1b2c3d	11	sim@edge	1	11	abababababababababababababababab	completed	\N		2026-01-01 12:23:00+00	f
13	9f8e7d6c	1	sim2@edge	1	1	abababababababababababababababab	completed	\N		2026-01-01 12:42:00+00	f
14	9f8e7d6c	1	sim2@edge	1	101	abababababababababababababababab	completed	\N	sent again	2026-01-01 12:42:00+00	t
\.


--
-- Data for Name: stop_back; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.stop_back (device_id) FROM stdin;
sim@edge
sim5@edge
\.


--
-- Data for Name: stops; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.stops (id, at, who, why) FROM stdin;
1	2026-01-01 12:50:00+00	ann	the fans are being cleaned
\.


--
-- Data for Name: studies; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.studies (id, workload, phase, revision, last_trial, created_at) FROM stdin;
0a1b2c3d	inference	holding	7	11	2026-01-01 12:00:00+00
9f8e7d6c	inference	tuning	1	2	2026-01-01 12:40:00+00
5c5c5c5c	inference	tuning	1	3	2026-01-01 12:43:00+00
7e7e7e7e	inference	baseline	1	1	2026-01-01 12:00:00+00
\.


--
-- Data for Name: study_devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.study_devices (study_id, device_id, active) FROM stdin;
0a1b2c3d	sim@edge	t
9f8e7d6c	sim2@edge	t
5c5c5c5c	sim3@edge	t
5c5c5c5c	sim4@edge	t
7e7e7e7e	sim5@edge	t
\.


--
-- Data for Name: study_revisions; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.study_revisions (study_id, revision, document, who, why, at) FROM stdin;
0a1b2c3d	1	{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}, {"metric": "tokens_per_j", "op": ">=", "bound": 0.5, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "baseline", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 1, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}	ann	created	2026-01-01 12:00:00+00
0a1b2c3d	2	{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}, {"metric": "tokens_per_j", "op": ">=", "bound": 0.5, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 2, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}	tuner	baseline known	2026-01-01 12:05:00+00
0a1b2c3d	3	{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}, {"metric": "tokens_per_j", "op": ">=", "bound": 0.5, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "paused", "paused_from": "tuning", "reason": "", "paused_reason": "", "plan": null, "revision": 3, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}	ann	lunch	2026-01-01 12:15:00+00
0a1b2c3d	4	{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}, {"metric": "tokens_per_j", "op": ">=", "bound": 0.5, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 4, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}	ann		2026-01-01 12:16:00+00
0a1b2c3d	5	{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 5, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}	bob	constraints changed	2026-01-01 12:17:00+00
0a1b2c3d	7	{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "holding", "paused_from": null, "reason": "", "paused_reason": "", "plan": {"rows": [{"below": 1.5, "setting": {"gpu.clock_mhz": 1000, "batch_size": 1}, "gain": 1.0, "at": null}, {"below": 3.0, "setting": {"gpu.clock_mhz": 600, "batch_size": 1}, "gain": 0.25, "at": 2.0}, {"below": null, "setting": {"gpu.clock_mhz": 800, "batch_size": 4}, "gain": 0.125, "at": 4.0}], "by": "requests_in_system", "hysteresis": 0.2, "eager": false}, "revision": 7, "since_trial": 1, "phase_since": 12, "created_at": "2026-01-01T12:00:00+00:00"}	tuner	confirmed	2026-01-01 12:30:00+00
7e7e7e7e	1	{"name": "the night shift", "policy": "scripted", "seed": 0, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "7e7e7e7e", "devices": ["sim5@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {}, "signals": [], "constraints": [], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "baseline", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 1, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:00:00+00:00"}	ann		2026-01-01 12:00:00+00
0a1b2c3d	6	{"name": "", "policy": "packrat", "seed": 7, "terms": {"trials": 4, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "search", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "0a1b2c3d", "devices": ["sim@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {"tokens_per_j": {"unit": "1/J", "better": "more", "kind": "other", "over_devices": "most", "over_windows": "mean", "signed": false}}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "confirming", "paused_from": null, "reason": "", "paused_reason": "", "plan": {"rows": [{"below": 1.5, "setting": {"gpu.clock_mhz": 1000, "batch_size": 1}, "gain": 1.0, "at": null}, {"below": 3.0, "setting": {"gpu.clock_mhz": 600, "batch_size": 1}, "gain": 0.25, "at": 2.0}, {"below": null, "setting": {"gpu.clock_mhz": 800, "batch_size": 4}, "gain": 0.125, "at": 4.0}], "by": "requests_in_system", "hysteresis": 0.2, "eager": false}, "revision": 6, "since_trial": 1, "phase_since": 10, "created_at": "2026-01-01T12:00:00+00:00"}	tuner	three loads were looked at	2026-01-01 12:20:00+00
9f8e7d6c	1	{"name": "", "policy": "scripted", "seed": 0, "terms": {"trials": 6, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "balanced", "mode": "continuous", "canary": "", "canary_windows": 5, "control_share": 0.0, "control_hours": "0-24", "energy_share": null, "plan_by": "", "transfer": true}, "id": "9f8e7d6c", "devices": ["sim2@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": null, "quantities": {}, "signals": [], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 120.0, "relative": false}], "exploration": {"windows": [], "time_zone": "UTC", "frozen": "", "max_time_share": 1.0, "max_energy_share": 1.0, "min_saving": 0.0}, "group": "", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 1, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:40:00+00:00"}	bob		2026-01-01 12:40:00+00
5c5c5c5c	1	{"name": "", "policy": "scripted", "seed": 0, "terms": {"trials": 6, "window_s": 10.0, "max_window_s": 30.0, "valid_for_s": 604800.0, "allow_estimated": false, "allow_restart": true, "safety": "advise", "mode": "search", "canary": "sim3@edge", "canary_windows": 5, "control_share": 0.02, "control_hours": "22-6", "energy_share": 0.5, "plan_by": "requests_in_system", "transfer": true}, "id": "5c5c5c5c", "devices": ["sim3@edge", "sim4@edge"], "workload": "inference", "space": {"knobs": [{"name": "gpu.clock_mhz", "values": [400, 600, 800, 1000], "default": 1000, "part": "device", "cost": {"seconds": 0.0, "restart": false}, "role": "core_clock", "by_choice": false, "condition": null, "breaks": []}, {"name": "batch_size", "values": [1, 2, 4], "default": 1, "part": "workload", "cost": {"seconds": 0.0, "restart": false}, "role": "batch", "by_choice": false, "condition": null, "breaks": []}], "only": []}, "objective": {"metric": "energy_j", "goal": "minimize"}, "second_objective": {"metric": "latency_p99_ms", "goal": "minimize"}, "quantities": {}, "signals": [{"name": "requests_in_system", "unit": "1", "askable": true, "followed": false}], "constraints": [{"metric": "latency_p99_ms", "op": "<=", "bound": 1.2, "relative": true}], "exploration": {"windows": [{"cron": "0 22 * * *", "hours": 8.0}], "time_zone": "Europe/Zurich", "frozen": "release day", "max_time_share": 0.5, "max_energy_share": 0.25, "min_saving": 0.02}, "group": "web", "transfer": {"plan": {}, "holders": 0}, "phase": "tuning", "paused_from": null, "reason": "", "paused_reason": "", "plan": null, "revision": 1, "since_trial": 1, "phase_since": 1, "created_at": "2026-01-01T12:43:00+00:00"}	ann	declared by fleet.toml	2026-01-01 12:43:00+00
\.


--
-- Data for Name: tokens; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.tokens (name, role, digest, created_at, expires_at, used_at, revoked_at) FROM stdin;
ann	operator	acdc3beb3c6db11fa6c9448de2bac2f1d216de2c65cab90cfcce3fa014097c3d	2026-01-01 12:00:00+00	\N	\N	\N
bob	operator	e1fc7832d069d75663ffb753cfa7192b8938879efc81576042bbebdb8d73ffe6	2026-01-01 12:00:00+00	\N	\N	2026-01-01 12:45:00+00
enrol-1	enrol	f839161355091fcd9e33f571e0b11c60217a5009f9973e769c13d7858db162cc	2026-01-01 12:00:00+00	2026-01-02 12:00:00+00	2026-01-01 12:00:00+00	\N
agent@edge	agent	d155d89b6fc6fff906b27e4b4db8faaeaf03bea0270839b2426f9db7fa8fecfc	2026-01-01 12:00:00+00	\N	\N	\N
enrol-2	enrol	857e3d6285b9b9d7811727c04ba35116c0193ec7c23514b47192a3fe8ea7c7c2	2026-01-01 12:00:00+00	2026-01-02 12:00:00+00	\N	\N
\.


--
-- Data for Name: trial_states; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.trial_states (id, study_id, trial_number, state, attempt, at) FROM stdin;
1	0a1b2c3d	1	running	1	2026-01-01 12:02:00+00
2	0a1b2c3d	1	completed	1	2026-01-01 12:03:00+00
3	0a1b2c3d	2	running	1	2026-01-01 12:04:00+00
4	0a1b2c3d	2	completed	1	2026-01-01 12:05:00+00
5	0a1b2c3d	3	running	1	2026-01-01 12:06:00+00
6	0a1b2c3d	3	completed	1	2026-01-01 12:07:00+00
7	0a1b2c3d	4	running	1	2026-01-01 12:08:00+00
8	0a1b2c3d	4	completed	1	2026-01-01 12:09:00+00
9	0a1b2c3d	5	running	1	2026-01-01 12:10:00+00
10	0a1b2c3d	5	completed	1	2026-01-01 12:11:00+00
11	0a1b2c3d	6	running	1	2026-01-01 12:12:00+00
12	0a1b2c3d	6	failed	1	2026-01-01 12:13:00+00
13	0a1b2c3d	7	running	1	2026-01-01 12:14:00+00
14	0a1b2c3d	7	aborted	1	2026-01-01 12:15:00+00
15	0a1b2c3d	8	running	1	2026-01-01 12:16:00+00
16	0a1b2c3d	8	running	2	2026-01-01 12:16:30+00
17	0a1b2c3d	8	contaminated	2	2026-01-01 12:17:00+00
18	0a1b2c3d	9	running	1	2026-01-01 12:18:00+00
19	0a1b2c3d	9	inconclusive	1	2026-01-01 12:19:00+00
20	0a1b2c3d	10	running	1	2026-01-01 12:20:00+00
21	0a1b2c3d	10	completed	1	2026-01-01 12:21:00+00
22	0a1b2c3d	11	running	1	2026-01-01 12:22:00+00
23	0a1b2c3d	11	completed	1	2026-01-01 12:23:00+00
24	9f8e7d6c	1	running	1	2026-01-01 12:41:00+00
25	9f8e7d6c	1	completed	1	2026-01-01 12:42:00+00
26	9f8e7d6c	2	running	1	2026-01-01 12:43:00+00
27	5c5c5c5c	1	running	1	2026-01-01 12:44:00+00
28	5c5c5c5c	1	completed	1	2026-01-01 12:45:00+00
29	5c5c5c5c	2	running	1	2026-01-01 12:44:00+00
30	5c5c5c5c	2	completed	1	2026-01-01 12:45:00+00
31	5c5c5c5c	3	running	1	2026-01-01 12:46:00+00
32	5c5c5c5c	3	completed	1	2026-01-01 12:47:00+00
33	7e7e7e7e	1	running	1	2026-01-01 12:49:00+00
34	7e7e7e7e	1	completed	1	2026-01-01 12:50:00+00
\.


--
-- Data for Name: trials; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.trials (study_id, number, setting, phase, context, state, attempt, started_at, ended_at, why, broke, reason, device_id, plan) FROM stdin;
0a1b2c3d	1	{"gpu.clock_mhz": 1000, "batch_size": 1}	baseline	{}	completed	1	2026-01-01 12:02:00+00	2026-01-01 12:03:00+00	baseline at {}	\N		\N	\N
0a1b2c3d	2	{"gpu.clock_mhz": 1000, "batch_size": 1}	baseline	{}	completed	1	2026-01-01 12:04:00+00	2026-01-01 12:05:00+00	baseline at {}	\N		\N	\N
0a1b2c3d	3	{"gpu.clock_mhz": 800, "batch_size": 1}	tuning	{}	completed	1	2026-01-01 12:06:00+00	2026-01-01 12:07:00+00	tuning at {}	\N		\N	\N
0a1b2c3d	4	{"gpu.clock_mhz": 600, "batch_size": 1}	tuning	{"requests_in_system": 2.0}	completed	1	2026-01-01 12:08:00+00	2026-01-01 12:09:00+00	tuning at {'requests_in_system': 2.0}	\N		\N	\N
0a1b2c3d	5	{"gpu.clock_mhz": 400, "batch_size": 1}	tuning	{"requests_in_system": 4.0}	completed	1	2026-01-01 12:10:00+00	2026-01-01 12:11:00+00	tuning at {'requests_in_system': 4.0}	latency_p99_ms <= 120.0	latency_p99_ms was 200, the limit is <= 120	\N	\N
0a1b2c3d	6	{"gpu.clock_mhz": 400, "batch_size": 2}	tuning	{}	failed	1	2026-01-01 12:12:00+00	2026-01-01 12:13:00+00	tuning at {}	\N	no such clock	\N	\N
0a1b2c3d	7	{"gpu.clock_mhz": 800, "batch_size": 2}	tuning	{}	aborted	1	2026-01-01 12:14:00+00	2026-01-01 12:15:00+00	tuning at {}	\N	paused by ann	\N	\N
0a1b2c3d	8	{"gpu.clock_mhz": 800, "batch_size": 4}	tuning	{}	contaminated	2	2026-01-01 12:16:00+00	2026-01-01 12:17:00+00	tuning at {}	\N	foreign	\N	\N
0a1b2c3d	9	{"gpu.clock_mhz": 600, "batch_size": 4}	tuning	{}	inconclusive	1	2026-01-01 12:18:00+00	2026-01-01 12:19:00+00	tuning at {}	\N	40 requests in the longest window	\N	\N
0a1b2c3d	10	{"gpu.clock_mhz": 600, "batch_size": 1}	confirming	{"requests_in_system": 2.0}	completed	1	2026-01-01 12:20:00+00	2026-01-01 12:21:00+00	confirming at {'requests_in_system': 2.0}	\N		\N	\N
0a1b2c3d	11	{"gpu.clock_mhz": 1000, "batch_size": 1}	confirming	{"requests_in_system": 2.0}	completed	1	2026-01-01 12:22:00+00	2026-01-01 12:23:00+00	confirming at {'requests_in_system': 2.0}	\N		\N	\N
9f8e7d6c	1	{"gpu.clock_mhz": 1000, "batch_size": 1}	baseline	{}	completed	1	2026-01-01 12:41:00+00	2026-01-01 12:42:00+00	baseline at {}	\N		\N	\N
9f8e7d6c	2	{"gpu.clock_mhz": 800, "batch_size": 1}	tuning	{"requests_in_system": 2.0}	running	1	2026-01-01 12:43:00+00	\N	one step down	\N		\N	\N
5c5c5c5c	1	{"gpu.clock_mhz": 800, "batch_size": 1}	tuning	{}	completed	1	2026-01-01 12:44:00+00	2026-01-01 12:45:00+00	its own	\N		sim3@edge	\N
5c5c5c5c	2	{"gpu.clock_mhz": 600, "batch_size": 1}	tuning	{}	completed	1	2026-01-01 12:44:00+00	2026-01-01 12:45:00+00	its own	\N		sim4@edge	\N
5c5c5c5c	3	{"gpu.clock_mhz": 800, "batch_size": 1}	confirming	{}	completed	1	2026-01-01 12:46:00+00	2026-01-01 12:47:00+00	the table	\N		\N	{"rows": [{"below": 2.0, "setting": {"gpu.clock_mhz": 800, "batch_size": 1}, "gain": 1.0, "at": null}, {"below": null, "setting": {"gpu.clock_mhz": 1000, "batch_size": 1}, "gain": 1.0, "at": null}], "by": "requests_in_system", "hysteresis": 0.1, "eager": false}
7e7e7e7e	1	{"gpu.clock_mhz": 1000, "batch_size": 1}	baseline	{}	completed	1	2026-01-01 12:49:00+00	2026-01-01 12:50:00+00	baseline	\N		\N	\N
\.


--
-- Data for Name: window_samples; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.window_samples (measurement_id, document) FROM stdin;
26	\\x789c5d90dd0ac3200c85dfc5eb5074ab6cebab8c529ccd5a37a7d05ac6287df7c59f32981762cef972125c99b65e3fbb993557c179c54108ba5b606f656d964fbc9ce896a240336aeffa48455346201bc10765495f193a9c864ff7284ccd2b09e70c9980afbdf72053421cd26ec0a6c59173a70ca44205e3ffc37eef3d0844eeb52aa0d3067387d26397a6a4ad060c234eac211418f603ced94cd3d30710a6fde242548f9cc48b0449e2cd38877dd969dbbed4e75b47
\.


--
-- Data for Name: workload_versions; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.workload_versions (workload, version, first_seen_at) FROM stdin;
inference	1	2026-01-01 12:00:00+00
\.


--
-- Data for Name: write_checks; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.write_checks (id, times) FROM stdin;
\.


--
-- Name: applied_settings_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.applied_settings_id_seq', 3, true);


--
-- Name: audit_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.audit_id_seq', 1, true);


--
-- Name: events_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.events_id_seq', 3, true);


--
-- Name: measurements_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.measurements_id_seq', 26, true);


--
-- Name: observations_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.observations_id_seq', 2, true);


--
-- Name: observed_windows_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.observed_windows_id_seq', 2, true);


--
-- Name: reports_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.reports_id_seq', 14, true);


--
-- Name: trial_states_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.trial_states_id_seq', 34, true);


--
-- Name: write_checks_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.write_checks_id_seq', 1, false);


--
-- Name: alembic_version alembic_version_pkc; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);


--
-- Name: applied_settings pk_applied_settings; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.applied_settings
    ADD CONSTRAINT pk_applied_settings PRIMARY KEY (id);


--
-- Name: audit pk_audit; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit
    ADD CONSTRAINT pk_audit PRIMARY KEY (id);


--
-- Name: budget_groups pk_budget_groups; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.budget_groups
    ADD CONSTRAINT pk_budget_groups PRIMARY KEY (name);


--
-- Name: budget_members pk_budget_members; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.budget_members
    ADD CONSTRAINT pk_budget_members PRIMARY KEY (device_id);


--
-- Name: deliveries pk_deliveries; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT pk_deliveries PRIMARY KEY (destination);


--
-- Name: devices pk_devices; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.devices
    ADD CONSTRAINT pk_devices PRIMARY KEY (id);


--
-- Name: estimates pk_estimates; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.estimates
    ADD CONSTRAINT pk_estimates PRIMARY KEY (measurement_id, metric);


--
-- Name: events pk_events; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (id);


--
-- Name: leases pk_leases; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT pk_leases PRIMARY KEY (device_id);


--
-- Name: measurements pk_measurements; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT pk_measurements PRIMARY KEY (id);


--
-- Name: observations pk_observations; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT pk_observations PRIMARY KEY (id);


--
-- Name: observed_windows pk_observed_windows; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.observed_windows
    ADD CONSTRAINT pk_observed_windows PRIMARY KEY (id);


--
-- Name: releases pk_releases; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.releases
    ADD CONSTRAINT pk_releases PRIMARY KEY (device_id);


--
-- Name: replicas pk_replicas; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.replicas
    ADD CONSTRAINT pk_replicas PRIMARY KEY (id);


--
-- Name: reports pk_reports; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reports
    ADD CONSTRAINT pk_reports PRIMARY KEY (id);


--
-- Name: stop_back pk_stop_back; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.stop_back
    ADD CONSTRAINT pk_stop_back PRIMARY KEY (device_id);


--
-- Name: stops pk_stops; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.stops
    ADD CONSTRAINT pk_stops PRIMARY KEY (id);


--
-- Name: studies pk_studies; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.studies
    ADD CONSTRAINT pk_studies PRIMARY KEY (id);


--
-- Name: study_devices pk_study_devices; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.study_devices
    ADD CONSTRAINT pk_study_devices PRIMARY KEY (study_id, device_id);


--
-- Name: study_revisions pk_study_revisions; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.study_revisions
    ADD CONSTRAINT pk_study_revisions PRIMARY KEY (study_id, revision);


--
-- Name: tokens pk_tokens; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT pk_tokens PRIMARY KEY (name);


--
-- Name: trial_states pk_trial_states; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.trial_states
    ADD CONSTRAINT pk_trial_states PRIMARY KEY (id);


--
-- Name: trials pk_trials; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.trials
    ADD CONSTRAINT pk_trials PRIMARY KEY (study_id, number);


--
-- Name: window_samples pk_window_samples; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.window_samples
    ADD CONSTRAINT pk_window_samples PRIMARY KEY (measurement_id);


--
-- Name: workload_versions pk_workload_versions; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.workload_versions
    ADD CONSTRAINT pk_workload_versions PRIMARY KEY (workload, version);


--
-- Name: write_checks pk_write_checks; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.write_checks
    ADD CONSTRAINT pk_write_checks PRIMARY KEY (id);


--
-- Name: measurements uq_measurements_observation_id; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT uq_measurements_observation_id UNIQUE (observation_id);


--
-- Name: measurements uq_measurements_report_id; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT uq_measurements_report_id UNIQUE (report_id);


--
-- Name: measurements uq_measurements_study_id_trial_number; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT uq_measurements_study_id_trial_number UNIQUE (study_id, trial_number);


--
-- Name: observations uq_observations_study_id_device_id_started_at; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT uq_observations_study_id_device_id_started_at UNIQUE (study_id, device_id, started_at);


--
-- Name: observed_windows uq_observed_windows_device_id_started_at; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.observed_windows
    ADD CONSTRAINT uq_observed_windows_device_id_started_at UNIQUE (device_id, started_at);


--
-- Name: reports uq_reports_study_id_trial_number_device_id_token_nonce; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reports
    ADD CONSTRAINT uq_reports_study_id_trial_number_device_id_token_nonce UNIQUE (study_id, trial_number, device_id, token, nonce);


--
-- Name: tokens uq_tokens_digest; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT uq_tokens_digest UNIQUE (digest);


--
-- Name: ix_applied_settings_device_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_applied_settings_device_id ON public.applied_settings USING btree (device_id);


--
-- Name: ix_audit_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_audit_at ON public.audit USING btree (at);


--
-- Name: ix_events_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_events_at ON public.events USING btree (at);


--
-- Name: ix_events_device_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_events_device_id ON public.events USING btree (device_id);


--
-- Name: ix_events_study_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_events_study_id ON public.events USING btree (study_id);


--
-- Name: ix_leases_study_id_trial_number; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_leases_study_id_trial_number ON public.leases USING btree (study_id, trial_number);


--
-- Name: ix_observations_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_observations_at ON public.observations USING btree (at);


--
-- Name: ix_observed_windows_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_observed_windows_at ON public.observed_windows USING btree (at);


--
-- Name: ix_study_devices_device_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_study_devices_device_id ON public.study_devices USING btree (device_id);


--
-- Name: ix_trial_states_study_id_trial_number; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_trial_states_study_id_trial_number ON public.trial_states USING btree (study_id, trial_number);


--
-- Name: ix_trials_running; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_trials_running ON public.trials USING btree (study_id) WHERE ((state)::text = 'running'::text);


--
-- Name: ix_trials_started_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_trials_started_at ON public.trials USING btree (started_at);


--
-- Name: uq_study_devices_active; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX uq_study_devices_active ON public.study_devices USING btree (device_id) WHERE active;


--
-- Name: devices fk_devices_workload_workload_version; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.devices
    ADD CONSTRAINT fk_devices_workload_workload_version FOREIGN KEY (workload, workload_version) REFERENCES public.workload_versions(workload, version);


--
-- Name: estimates fk_estimates_measurement_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.estimates
    ADD CONSTRAINT fk_estimates_measurement_id FOREIGN KEY (measurement_id) REFERENCES public.measurements(id) ON DELETE CASCADE;


--
-- Name: leases fk_leases_study_id_trial_number; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT fk_leases_study_id_trial_number FOREIGN KEY (study_id, trial_number) REFERENCES public.trials(study_id, number) ON DELETE SET NULL;


--
-- Name: measurements fk_measurements_observation_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT fk_measurements_observation_id FOREIGN KEY (observation_id) REFERENCES public.observations(id) ON DELETE CASCADE;


--
-- Name: measurements fk_measurements_report_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT fk_measurements_report_id FOREIGN KEY (report_id) REFERENCES public.reports(id) ON DELETE CASCADE;


--
-- Name: measurements fk_measurements_study_id_trial_number; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT fk_measurements_study_id_trial_number FOREIGN KEY (study_id, trial_number) REFERENCES public.trials(study_id, number) ON DELETE CASCADE;


--
-- Name: observations fk_observations_study_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.observations
    ADD CONSTRAINT fk_observations_study_id FOREIGN KEY (study_id) REFERENCES public.studies(id) ON DELETE CASCADE;


--
-- Name: observed_windows fk_observed_windows_device_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.observed_windows
    ADD CONSTRAINT fk_observed_windows_device_id FOREIGN KEY (device_id) REFERENCES public.devices(id) ON DELETE CASCADE;


--
-- Name: reports fk_reports_study_id_trial_number; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.reports
    ADD CONSTRAINT fk_reports_study_id_trial_number FOREIGN KEY (study_id, trial_number) REFERENCES public.trials(study_id, number) ON DELETE CASCADE;


--
-- Name: study_devices fk_study_devices_study_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.study_devices
    ADD CONSTRAINT fk_study_devices_study_id FOREIGN KEY (study_id) REFERENCES public.studies(id) ON DELETE CASCADE;


--
-- Name: study_revisions fk_study_revisions_study_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.study_revisions
    ADD CONSTRAINT fk_study_revisions_study_id FOREIGN KEY (study_id) REFERENCES public.studies(id) ON DELETE CASCADE;


--
-- Name: trial_states fk_trial_states_study_id_trial_number; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.trial_states
    ADD CONSTRAINT fk_trial_states_study_id_trial_number FOREIGN KEY (study_id, trial_number) REFERENCES public.trials(study_id, number) ON DELETE CASCADE;


--
-- Name: trials fk_trials_study_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.trials
    ADD CONSTRAINT fk_trials_study_id FOREIGN KEY (study_id) REFERENCES public.studies(id) ON DELETE CASCADE;


--
-- Name: window_samples fk_window_samples_measurement_id; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.window_samples
    ADD CONSTRAINT fk_window_samples_measurement_id FOREIGN KEY (measurement_id) REFERENCES public.measurements(id) ON DELETE CASCADE;


--
-- PostgreSQL database dump complete
--


