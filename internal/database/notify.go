package database

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// heedKey is the CustomData key of a connection's notification handler.
const heedKey = "embedsidecar.heed"

// Heed sets the handler of a connection's notifications. It runs in whichever goroutine reads from the connection.
// Nothing is stored: any role can send any number of notifications.
func Heed(conn *pgconn.PgConn, heed func(payload string)) { conn.CustomData()[heedKey] = heed }

// Hear waits for a notification. When ctx ends first, it returns false and the connection stays usable.
func Hear(ctx context.Context, conn *pgconn.PgConn) (heard bool, err error) {
	err = conn.WaitForNotification(ctx)
	if err != nil && ctx.Err() != nil && !conn.IsClosed() {
		return false, nil
	}
	return err == nil, err
}

// notified passes a notification to the handler, if there is one: a user's trigger may LISTEN in our session.
func notified(conn *pgconn.PgConn, n *pgconn.Notification) {
	if heed, asked := conn.CustomData()[heedKey].(func(payload string)); asked {
		heed(n.Payload)
	}
}
