create schema if not exists minke;

create table minke.format (version integer not null);
insert into minke.format values (0);

-- One row for each session. The name is its directory and its id: `sessions/<id>`, `trash/<id>`.
create table minke.session (
    key bigint generated always as identity primary key,
    name text not null unique,
    -- The label of its workspace: only hosts with this label start its pod.
    label text not null,
    made timestamptz not null default clock_timestamp()
);

-- The locks of a session: for writing (`lease`) and for its list of forks (`forks`). The fence is a fencing token: it grows
-- with every new holder, and entries are only accepted with the newest one.
create table minke.lease (
    session bigint not null references minke.session on delete cascade,
    name text not null,
    fence bigint not null default 0,
    owner uuid,
    holder text not null default '',
    since timestamptz,
    expires timestamptz,
    primary key (session, name)
);

-- The files of a session: its log, blobs, markers. The content of a log is in `entry`.
create table minke.file (
    key bigint generated always as identity primary key,
    session bigint not null references minke.session on delete cascade,
    name text not null,
    kind text not null check (kind in ('log', 'content', 'directory')),
    bytes bigint not null default 0,
    synced bigint not null default 0,
    modified timestamptz not null default clock_timestamp(),
    content bytea,
    unique (session, name)
);
alter table minke.file alter column content set storage external;

-- One row for each line of a log, with its newline, exactly as it was sealed; `at` is the byte where it begins.
create table minke.entry (
    file bigint not null references minke.file on delete cascade,
    at bigint not null,
    seq bigint,
    fence bigint,
    line bytea not null,
    primary key (file, at)
);

-- The host that may start a job's pod.
create table minke.claim (
    session bigint primary key references minke.session on delete cascade,
    owner uuid not null,
    expires timestamptz not null
);
