package python

import (
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	pluginpb "github.com/embedsidecar/embedsidecar/plugins/proto"
)

// sameDescriptor compares a set of descriptors with the one that the Go side was generated from.
func sameDescriptor(content []byte) error {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(content, &set); err != nil {
		return err
	}
	if len(set.GetFile()) != 1 || !proto.Equal(set.GetFile()[0],
		protodesc.ToFileDescriptorProto(pluginpb.File_embedder_proto)) {
		return errors.New("contract.binpb is not embedder.proto")
	}
	return nil
}
