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

// equipment is what something that is done once works with.
type equipment struct {
	pool    *pgxpool.Pool // as the role that works
	owner   *pgxpool.Pool // straight to the server
	plugins *embedders.Pool
	left    config.Spread // of schemas
}

// equip connects, and finds the schemas that pipelines are worked in. The caller closes what it returns.
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

// close ends the embedders, and then the connections.
func (e *equipment) close() error {
	err := e.plugins.Close()
	e.owner.Close()
	e.pool.Close()
	return err
}
