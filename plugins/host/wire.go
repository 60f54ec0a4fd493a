package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/embedsidecar/embedsidecar/internal/base/secret"
	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// maxStatus bounds the headers of a plugin's answers, which include error details.
const maxStatus = 64 << 10

// streaming is redacting for streams. It refuses the stream of go-plugin's broker, because the host would store all
// that a plugin offers there.
func streaming(redact func(string) string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if strings.HasPrefix(method, "/plugin.GRPCBroker/") {
			return nil, status.Error(codes.Unimplemented, "the host takes no connections")
		}
		stream, err := open(ctx, desc, conn, method, options...)
		return &redacted{stream, redact}, err
	}
}

type redacted struct {
	grpc.ClientStream

	redact func(string) string
}

// RecvMsg implements grpc.ClientStream.
func (r *redacted) RecvMsg(m any) error {
	err := r.ClientStream.RecvMsg(m)
	if errors.Is(err, io.EOF) {
		return err
	}
	return redactReply(m, err, r.redact)
}

// atMost bounds the number of fields in an answer: decoded, a small message takes far more memory than its bytes.
func atMost(texts int) grpc.CallOption {
	return grpc.ForceCodecV2(counting{encoding.GetCodecV2("proto"), texts})
}

type counting struct {
	encoding.CodecV2

	texts int
}

// Unmarshal implements encoding.CodecV2.
func (c counting) Unmarshal(data mem.BufferSlice, v any) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := c.count(whole.ReadOnlyData(), v); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}

// count counts the fields of an answer, also of an answer inside a stream message.
func (c counting) count(raw []byte, v any) error {
	_, part := v.(*pluginpb.FetchBatchResponse)
	for fields := 0; len(raw) > 0; fields++ {
		if most := 2*c.texts + 16; fields > most { //nolint:mnd // tokens and outcome of each text, and the other fields
			return fmt.Errorf("the answer to %d texts has more than %d fields", c.texts, most)
		}
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, raw[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if inner, n := protowire.ConsumeBytes(raw[n:]); part && number == 2 && kind == protowire.BytesType && n > 0 {
			if err := c.count(inner, nil); err != nil {
				return err
			}
		}
		raw = raw[n+size:]
	}
	return nil
}

// A plugin's output may contain secrets: some libraries put keys into their errors. So secrets are removed where the
// host receives text from a plugin: output lines, the handshake, and every string of an answer.

// leastSecret is the least length of a value to redact; shorter ones also occur as ordinary words.
const leastSecret = 8

// redactor masks the values of secret variables in env, and then applies more.
func redactor(env map[string]string, more func(string) string) func(string) string {
	var secrets []string
	for name, value := range env {
		if len(value) >= leastSecret && secret.Variable(name) {
			secrets = append(secrets, writtenForms(value)...)
		}
	}
	// longest first: one secret may begin with another
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return func(s string) string {
		for _, known := range secrets {
			s = strings.ReplaceAll(s, known, secret.Mask)
		}
		if more != nil {
			s = more(s)
		}
		return s
	}
}

// writtenForms are the ways in which a secret may occur in a message: plain, quoted, in JSON, and in a URL.
func writtenForms(secret string) []string {
	forms := []string{
		secret, inside(strconv.Quote(secret)), inside(strconv.QuoteToASCII(secret)), url.QueryEscape(secret),
		url.PathEscape(secret),
	}
	if encoded, err := json.Marshal(secret); err == nil {
		forms = append(forms, inside(string(encoded)))
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// inside removes the quotes.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

// redacting is an interceptor that removes secrets from answers and errors.
func redacting(redact func(string) string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		return redactReply(reply, invoke(ctx, method, request, reply, conn, options...), redact)
	}
}

func redactReply(reply any, err error, redact func(string) string) error {
	if err != nil {
		said := status.Convert(err).Proto()
		said.Message = redact(said.GetMessage())
		return status.ErrorProto(said)
	}
	if m, ok := reply.(proto.Message); ok {
		redactMessage(m.ProtoReflect(), redact)
	}
	return nil
}

// redactMessage redacts every string of a message and its nested messages.
func redactMessage(m protoreflect.Message, redact func(string) string) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
		case field.IsList():
			list := value.List()
			for i := range list.Len() {
				if field.Kind() == protoreflect.StringKind {
					list.Set(i, protoreflect.ValueOfString(redact(list.Get(i).String())))
				} else if field.Kind() == protoreflect.MessageKind {
					redactMessage(list.Get(i).Message(), redact)
				}
			}
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(redact(value.String())))
		case field.Kind() == protoreflect.MessageKind:
			redactMessage(value.Message(), redact)
		}
		return true
	})
}
