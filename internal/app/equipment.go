package app

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/named/embedders"
	"github.com/embedsidecar/embedsidecar/internal/setup/connection"
	"github.com/embedsidecar/embedsidecar/internal/setup/lookup"
)

// equipment is the connections and embedders of a one-off command.
type equipment struct {
	pool    *pgxpool.Pool // of the configured URL
	owner   *pgxpool.Pool // directly to the server, for what a pooler cannot do
	plugins *embedders.Pool
	left    config.Spread // schemas that were left out
}

// equip connects, and finds the schemas of the pipelines. The caller closes the result.
func (n *Options) equip(ctx context.Context) (e equipment, err error) {
	open := connection.Opener{Config: n.Config, Log: n.Log}
	if e.pool, err = open.Pool(ctx, connection.Few); err != nil {
		return e, err
	}
	if e.owner, err = open.Server(ctx, e.pool, connection.Few); err != nil {
		e.pool.Close()
		return e, err
	}
	e.plugins = embedders.New(n.source())
	if n.Config, e.left, err = lookup.InSchemas(ctx, e.pool, n.Config); err != nil {
		return e, errors.Join(err, e.close())
	}
	return e, nil
}

// close closes the embedders, then the connections.
func (e *equipment) close() error {
	err := e.plugins.Close()
	e.owner.Close()
	e.pool.Close()
	return err
}
