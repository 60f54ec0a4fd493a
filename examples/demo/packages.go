package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// pkg is a row of the table.
type pkg struct {
	id                     int32
	name, section, summary string
}

// createTable is the table of docker-compose.yml without the vector column, which the sidecar makes.
const createTable = `CREATE TABLE public.packages (
    id      integer PRIMARY KEY,
    name    text NOT NULL,
    section text NOT NULL,
    summary text NOT NULL
)`

// readTexts reads the CSV in a fixed pseudo-random order, so that loaded and later inserted rows are both mixed.
func readTexts(path string) ([]pkg, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the texts (--texts): %w", err)
	}
	defer func() { _ = f.Close() }()
	r := csv.NewReader(f)
	r.FieldsPerRecord = 4
	var texts []pkg
	for line := 1; ; line++ {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the texts: %s: %w", path, err)
		}
		if line == 1 {
			continue // the heading
		}
		id, err := strconv.ParseInt(record[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read the texts: %s, line %d: id %q is no number", path, line, record[0])
		}
		texts = append(texts, pkg{int32(id), record[1], record[2], record[3]})
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
	return texts, nil
}

// load makes the table and copies rows into it.
func load(ctx context.Context, conn *pgx.Conn, rows []pkg) error {
	if _, err := conn.Exec(ctx, createTable); err != nil {
		return fmt.Errorf("make the table: %w", err)
	}
	source := pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		return []any{rows[i].id, rows[i].name, rows[i].section, rows[i].summary}, nil
	})
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"public", "packages"}, []string{"id", "name", "section", "summary"},
		source); err != nil {
		return fmt.Errorf("load the texts: %w", err)
	}
	_, err := conn.Exec(ctx, "ANALYZE public.packages")
	return err
}
