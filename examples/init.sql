-- The table of docker-compose.yml. The image's server runs this once, in a new and empty database.
CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE public.packages (
    id        integer PRIMARY KEY,
    name      text NOT NULL,
    section   text NOT NULL,
    summary   text NOT NULL,
    embedding vector(384)
);
COMMENT ON TABLE public.packages IS 'Debian packages and their one-line descriptions: examples/ATTRIBUTION.md';

COPY public.packages (id, name, section, summary) FROM '/examples/debian-packages.csv' WITH (FORMAT csv, HEADER true);
