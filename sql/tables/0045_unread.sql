-- A restart of a sidecar must not resume a pipeline whose vectors are being adopted. The other changes are of
-- functions, which are made again with each version: what they tell of a row that its caller may not read,
-- a search that finds no vector of zeros, and the hints for rows that are retried.
ALTER TABLE embedsidecar.pipeline ADD COLUMN adopting boolean NOT NULL DEFAULT false;
