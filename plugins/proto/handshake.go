// Package pluginpb is the contract between the sidecar and its plugins: embedder.proto, what is generated from it,
// and the few names of the handshake that a proto file cannot hold.
package pluginpb

//go:generate ./generate.sh

// The handshake. The cookie is no secret and guards nothing: it tells a person who starts a plugin by hand that a
// plugin is not started by hand.
const (
	MagicCookieKey   = "EMBEDSIDECAR_PLUGIN_COOKIE"
	MagicCookieValue = "started-by-embedsidecar"
	// ProtocolVersion changes when an old plugin or an old host could not read the other any more.
	ProtocolVersion = 1
	// PluginName is the key of the one plugin in go-plugin's set.
	PluginName = "embedder"
)

// Environment that the host sets for every plugin.
const (
	// LifelineKey tells a plugin where its lifeline is: a pipe that ends when the host ends. The only value is
	// LifelineStdin.
	LifelineKey   = "EMBEDSIDECAR_PLUGIN_LIFELINE"
	LifelineStdin = "stdin"
)

// Limits that both sides keep.
const (
	// MaxCallBytes is the most text that one call carries, whatever a plugin describes.
	MaxCallBytes = 32 << 20
	// MaxMessageBytes is the largest message an SDK plugin accepts or sends: MaxCallBytes with its framing, or the
	// vectors.
	MaxMessageBytes = 64 << 20
	// MaxDims is the widest vector; pgvector stores no wider one.
	MaxDims = 16000
	// MaxSparseDims is the widest vector of a sparse model.
	MaxSparseDims = 1 << 24
	// MaxSparseNumbers is how many numbers of a sparse vector are not zero, at most; pgvector stores no more.
	MaxSparseNumbers = 16000
	// MaxFetched is how many results of a batch job one message holds at most.
	MaxFetched = 256
)
