package rows

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/embedsidecar/embedsidecar/internal/base/lists"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/pipeline"
)

// keysOf, hashesOf and vectorsOf are the parameters of a write.
func keysOf(writes []Write) []string {
	return lists.Map(writes, func(v Write) string { return v.Key })
}

func hashesOf(writes []Write) [][]byte {
	return lists.Map(writes, func(v Write) []byte { return v.TextHash })
}

func vectorsOf(p *pipeline.Pipeline, writes []Write) any {
	return p.Parameter(lists.Map(writes, func(v Write) []float32 { return v.Vector }))
}

// vectorFormats are how places and vectors come.
var vectorFormats = pgx.QueryResultFormats{pgx.TextFormatCode, pgx.BinaryFormatCode}

// eachVector runs a query for places, from 1 to most, and vectors, and calls f for each, with its place from 0 on.
func eachVector(ctx context.Context, db database.Reader, p *pipeline.Pipeline, sql string, args []any, most int,
	f func(place int, vector []float32) error,
) error {
	rows, err := db.Query(ctx, sql, append([]any{vectorFormats}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		raw := rows.RawValues()
		place, err := parsePlace(raw[0], most)
		if err != nil {
			return err
		}
		if raw[1] == nil {
			continue // somebody's own table may allow that, and somebody may have done it
		}
		vector, err := p.Stored.ParseBinary(raw[1])
		if err != nil {
			return err
		}
		if err := f(place, vector); err != nil {
			return err
		}
	}
	return rows.Err()
}

// parsePlace returns which key of so many a result line is about: from 0 on, where statements count from 1.
func parsePlace(text []byte, most int) (int, error) {
	place, err := strconv.Atoi(string(text))
	if err != nil || place < 1 || place > most {
		return 0, fmt.Errorf("place %q of %d", text, most)
	}
	return place - 1, nil
}
