package problem

import (
	"cmp"
	"errors"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/internal/config"
	"github.com/embedsidecar/embedsidecar/internal/database"
	"github.com/embedsidecar/embedsidecar/internal/fault/code"
	"github.com/embedsidecar/embedsidecar/internal/fault/refusal"
	"github.com/embedsidecar/embedsidecar/plugins/host"
)

// Code returns the code of an error: its own, or else that of its type, the server's SQLSTATE, or its class.
func Code(err error) code.Code {
	own, classified := errors.AsType[*Error](err)
	if classified && own.Code != "" {
		return own.Code
	}
	for _, judge := range []func(error) code.Code{refused, configured, connected, embedded} {
		if found := judge(err); found != "" {
			return found
		}
	}
	if classified {
		return classCodes[own.Class]
	}
	if found := answerOf(err).code; found != "" {
		return found
	}
	return classCodes[Of(err)]
}

// classCodes are the codes of errors of which only the class is known.
var classCodes = map[Class]code.Code{
	Internal: code.Internal, Usage: code.Usage, NotSetUp: code.NotSetUp, Failed: code.Failed, Connect: code.NoAnswer,
	Permission: code.Permission, Conflict: code.Conflict, NoMatch: code.NoMatch, Timeout: code.Timeout,
}

// refused returns the code of an error of package refusal.
func refused(err error) code.Code {
	if is[*refusal.MissingError](err) {
		return code.NoTable
	}
	if wrong, ok := errors.AsType[*refusal.ConfigError](err); ok {
		return cmp.Or(wrong.Code, code.Pipeline)
	}
	if conflict, ok := errors.AsType[*refusal.ConflictError](err); ok {
		return cmp.Or(conflict.Code, code.Conflict)
	}
	switch {
	case is[*refusal.LostError](err):
		return code.SlotLost
	case is[*refusal.NotSetUpError](err):
		return code.NotSetUp
	case is[*refusal.PermissionError](err):
		return code.Permission
	}
	return ""
}

// configured returns the code of a configuration error.
func configured(err error) code.Code {
	switch {
	case is[*host.UnknownModelError](err):
		return code.NoModel
	case is[*config.NotFoundError](err):
		return code.NotFound
	case is[*config.Error](err), is[*config.ParseError](err):
		return code.Configuration
	}
	return ""
}

// connected returns the code of a connection error.
func connected(err error) code.Code {
	if e, ok := errors.AsType[*database.Error](err); ok {
		return connectCodes[e.Kind]
	}
	return ""
}

var connectCodes = map[database.Kind]code.Code{
	database.BadURL: code.BadURL, database.Unreachable: code.Unreachable, database.Starting: code.Starting,
	database.Full: code.Full, database.Auth: code.Auth, database.NoDatabase: code.NoDatabase,
	database.Permission: code.Permission, database.TLS: code.TLS, database.Standby: code.Standby,
	database.Pooler: code.Pooler, database.Untrusted: code.Untrusted, database.Other: code.NoAnswer,
}

// embedded returns the code of an embedder's error.
func embedded(err error) code.Code {
	whole, isWhole := errors.AsType[*embed.Error](err)
	switch {
	case isWhole && whole.Code == "checksum":
		return code.Checksum
	case is[*host.StartError](err):
		return code.PluginStart
	case isWhole:
		return embedCodes[whole.Class]
	case is[*embed.TextError](err):
		return code.Text
	}
	return ""
}

var embedCodes = map[embed.Class]code.Code{
	embed.Transient: code.EmbedderBusy, embed.Configuration: code.Embedder, embed.Data: code.Text,
	embed.Resource: code.EmbedderBusy, embed.Crash: code.Crashed,
}
