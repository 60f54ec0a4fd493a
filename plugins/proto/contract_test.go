package pluginpb_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

func golden(t *testing.T, path string) []string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// describe lists everything of the contract that is seen on the wire.
func describe(file protoreflect.FileDescriptor) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for i := range file.Services().Len() {
		service := file.Services().Get(i)
		for j := range service.Methods().Len() {
			m := service.Methods().Get(j)
			add("method /%s/%s %s -> %s, streaming %v %v", service.FullName(), m.Name(), m.Input().FullName(),
				m.Output().FullName(), m.IsStreamingClient(), m.IsStreamingServer())
		}
	}
	for i := range file.Messages().Len() {
		message := file.Messages().Get(i)
		add("message %s", message.FullName())
		for j := range message.Fields().Len() {
			f := message.Fields().Get(j)
			kind := f.Kind().String()
			if f.Message() != nil {
				kind = string(f.Message().FullName())
			} else if f.Enum() != nil {
				kind = string(f.Enum().FullName())
			}
			add("field %s = %d: %s %s, packed %v", f.FullName(), f.Number(), f.Cardinality(), kind, f.IsPacked())
		}
	}
	for i := range file.Enums().Len() {
		enum := file.Enums().Get(i)
		for j := range enum.Values().Len() {
			add("enum %s: %s = %d", enum.FullName(), enum.Values().Get(j).Name(), enum.Values().Get(j).Number())
		}
	}
	return lines
}

// Version 1 is frozen: what plugins out there were built with never changes its number, name or type. Lines may be
// added to the file, for what is added to the contract; none may be changed or removed.
func TestContract_IsFrozen(t *testing.T) {
	t.Parallel()
	if pluginpb.ProtocolVersion != 1 || pluginpb.MagicCookieKey != "EMBEDSIDECAR_PLUGIN_COOKIE" ||
		pluginpb.MagicCookieValue != "started-by-embedsidecar" ||
		pluginpb.LifelineKey != "EMBEDSIDECAR_PLUGIN_LIFELINE" || pluginpb.LifelineStdin != "stdin" ||
		pluginpb.MaxCallBytes != 32<<20 || pluginpb.MaxDims != 16000 ||
		pluginpb.MaxSparseDims != 16777216 || pluginpb.MaxSparseNumbers != 16000 {
		t.Error("a part of the handshake or a limit has changed, which plugins know by heart")
	}
	want, got := golden(t, "testdata/v1.txt"), describe(pluginpb.File_embedder_proto)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("gone or changed: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("new: %s\nAdding is allowed within version 1: add the line to testdata/v1.txt.", line)
		}
	}
}

// samples are one message of each kind with every field set.
func samples() map[string]proto.Message {
	return map[string]proto.Message{
		"DescribeRequest": &pluginpb.DescribeRequest{},
		"DescribeResponse": &pluginpb.DescribeResponse{Name: "onnx", Version: "1.4.0", Models: []*pluginpb.Model{{
			Name: "m", Fingerprint: "f:1", Dims: 384, MaxTokens: 256, Symmetric: true, MaxBatch: 64, MaxBatchBytes: 1 << 20,
			Deterministic: true,
		}}},
		"EmbedRequest": &pluginpb.EmbedRequest{
			Model: "m", Kind: pluginpb.Kind_KIND_QUERY,
			Texts: []string{"a", "", "\u00e4"},
		},
		"EmbedResponse": &pluginpb.EmbedResponse{
			Dims: 2, Vectors: []byte{0, 0, 128, 63, 0, 0, 0, 192},
			Tokens: []uint32{3, 300}, Outcomes: []*pluginpb.Outcome{
				{Index: 1, Empty: true},
				{Index: 2, Truncated: true},
				{Index: 3, Error: &pluginpb.Error{
					Class: pluginpb.ErrorClass_ERROR_CLASS_RETRY_LATER, DelayMs: 1500,
					Message: "busy",
				}},
			},
		},
		"DescribeResponse_sparse": &pluginpb.DescribeResponse{
			Name:   "splade",
			Models: []*pluginpb.Model{{Name: "m", Fingerprint: "f:2", Dims: 30522, Sparse: true}},
		},
		"EmbedResponse_sparse": &pluginpb.EmbedResponse{
			Dims: 30522, Outcomes: []*pluginpb.Outcome{{Index: 1, Empty: true}},
			Sparse: &pluginpb.SparseVectors{
				Counts: []uint32{2, 0, 1}, Indices: []byte{1, 0, 0, 0, 0x39, 0x30, 0, 0, 7, 0, 0, 0}, Values: []byte{
					0, 0, 128, 63,
					0, 0, 0, 64, 0, 0, 0, 63,
				},
			},
		},
		"HealthRequest":    &pluginpb.HealthRequest{},
		"HealthResponse":   &pluginpb.HealthResponse{Ready: true, Message: "well"},
		"TokenizeRequest":  &pluginpb.TokenizeRequest{Model: "m", Texts: []string{"a b"}},
		"TokenizeResponse": &pluginpb.TokenizeResponse{Tokens: []*pluginpb.Tokens{{Ends: []uint32{1, 3}}}, Around: 2},
	}
}

// The bytes themselves, both ways: plugins in other languages have no part in how ours are made.
func TestContract_BytesAreFrozen(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, line := range golden(t, "testdata/v1_bytes.txt") {
		name, digits, _ := strings.Cut(line, " ")
		message, ok := samples()[name]
		if !ok || seen[name] {
			t.Fatalf("no sample for %q, or two", name)
		}
		seen[name] = true
		want, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		if err != nil || hex.EncodeToString(got) != digits {
			t.Errorf("%s is written as %x (%v), want %x", name, got, err, want)
		}
		read := message.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(want, read); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(message, read, protocmp.Transform()); diff != "" {
			t.Errorf("%s is read differently (-want +got):\n%s", name, diff)
		}
	}
	for name := range samples() {
		if !seen[name] {
			t.Errorf("testdata/v1_bytes.txt has no %s", name)
		}
	}
}

// What a later version adds must not hide what this one knows.
func TestContract_ReadsLaterVersions(t *testing.T) {
	t.Parallel()
	for name, message := range samples() {
		raw, err := proto.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		later := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1) // before the known fields
		later = append(later, raw...)
		later = protowire.AppendString(protowire.AppendTag(later, 1000, protowire.BytesType), "of a later version")
		read := message.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(later, read); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		read.ProtoReflect().SetUnknown(nil)
		if !proto.Equal(message, read) {
			t.Errorf("%s: %v, want %v", name, read, message)
		}
	}
}
