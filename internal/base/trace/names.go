package trace

import "go.opentelemetry.io/otel/attribute"

// Attributes that OpenTelemetry's semantic conventions name (1.43). Their Go package is not used: it would bring
// thousands of names into the program, for these.
const (
	errorType           = attribute.Key("error.type")
	messagingSystem     = attribute.Key("messaging.system")
	messagingOperation  = attribute.Key("messaging.operation.name")
	messagingType       = attribute.Key("messaging.operation.type")
	messagingTo         = attribute.Key("messaging.destination.name")
	messagingBatch      = attribute.Key("messaging.batch.message_count")
	databaseSystem      = attribute.Key("db.system.name")
	databaseOperation   = attribute.Key("db.operation.name")
	databaseCollection  = attribute.Key("db.collection.name")
	databaseBatch       = attribute.Key("db.operation.batch.size")
	modelOperation      = attribute.Key("gen_ai.operation.name")
	modelProvider       = attribute.Key("gen_ai.provider.name")
	modelName           = attribute.Key("gen_ai.request.model")
	modelTokens         = attribute.Key("gen_ai.usage.input_tokens")
	modelDims           = attribute.Key("gen_ai.embeddings.dimension.count")
	serviceName         = attribute.Key("service.name")
	serviceVersion      = attribute.Key("service.version")
	serviceInstance     = attribute.Key("service.instance.id")
	scope               = "github.com/embedsidecar/embedsidecar"
	systemOfOurs        = "embedsidecar"
	operationEmbeddings = "embeddings"
)

// Attributes of ours.
const (
	pipelineName = attribute.Key("embedsidecar.pipeline")
	commitLSN    = attribute.Key("embedsidecar.commit.lsn")
	commitTime   = attribute.Key("embedsidecar.commit.time")
	rowKey       = attribute.Key("embedsidecar.row.key")
	attempt      = attribute.Key("embedsidecar.attempt")
	way          = attribute.Key("embedsidecar.way") // direct or queue
	outcome      = attribute.Key("embedsidecar.outcome")
	texts        = attribute.Key("embedsidecar.texts")
	textsSent    = attribute.Key("embedsidecar.texts.sent")
)
