package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// maxStatus bounds what a plugin says besides its answers, such as the details of an error.
const maxStatus = 64 << 10

// streaming is redacting for streams. That of go-plugin's broker is not opened: the host would remember whatever a
// plugin offers there.
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

// atMost bounds of how many parts the answer to so many texts consists: small ones take far more memory than bytes.
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

// count counts the fields of an answer, and of that within a part of a stream. What it cannot read the codec refuses.
func (c counting) count(raw []byte, v any) error {
	_, part := v.(*pluginpb.FetchBatchResponse)
	for fields := 0; len(raw) > 0; fields++ {
		if most := 2*c.texts + 16; fields > most { //nolint:mnd // tokens and an outcome of each, and the rest
			return fmt.Errorf("the answer to %d texts consists of more than %d parts", c.texts, most)
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
