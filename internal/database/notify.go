package database

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// heedKey is where a connection keeps who heeds what it is told.
const heedKey = "embedsidecar.heed"

// Heed has the payload of each notification that a connection gets handed to heed, by anyone who reads from the
// connection at that moment. Nothing is kept: anybody may notify, as often as he likes.
func Heed(conn *pgconn.PgConn, heed func(payload string)) { conn.CustomData()[heedKey] = heed }

// Hear waits until a connection is notified, or until ctx ends: then it returns false, and the connection goes on.
func Hear(ctx context.Context, conn *pgconn.PgConn) (heard bool, err error) {
	err = conn.WaitForNotification(ctx)
	if err != nil && ctx.Err() != nil && !conn.IsClosed() {
		return false, nil
	}
	return err == nil, err
}

// notified hands a notification on. Nobody may have asked for it: a trigger of the user's may LISTEN in a session of
// ours.
func notified(conn *pgconn.PgConn, n *pgconn.Notification) {
	if heed, asked := conn.CustomData()[heedKey].(func(payload string)); asked {
		heed(n.Payload)
	}
}
