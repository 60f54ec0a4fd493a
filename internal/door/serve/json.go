package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/embedsidecar/embedsidecar/internal/base/wording"
	"github.com/embedsidecar/embedsidecar/internal/door/gate"
)

// takes documents the body of a request. The function read parses it, because huma's decoding into any value would use
// many times the memory for a body of many small values.
func takes[T any](a *api, path string) {
	a.Document().Paths[path].Post.RequestBody = &huma.RequestBody{Required: true, Content: content[T](a)}
}

func content[T any](a *api) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: gate.Schema[T](a.API)}}
}

// answers documents the content of a streamed answer.
func answers[T any](a *api) func(*huma.Operation) {
	return func(op *huma.Operation) {
		op.Responses["200"] = &huma.Response{Description: "OK", Content: content[T](a)}
	}
}

// refuse makes the problem of an invalid request.
func refuse(param, code, format string, args ...any) error {
	return gate.Mistaken(code, param, fmt.Sprintf(format, args...))
}

// read reads the body of a POST. strict rejects unknown fields: a misspelt filter must not be ignored.
func read(ctx context.Context, into any, strict bool) error {
	body, err := gate.JSON(ctx)
	if err == nil {
		err = decode(body, into, strict)
	}
	return wrong(err)
}

// wrong turns a JSON decoding error into a problem; nil stays nil.
func wrong(err error) error {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*gate.Problem](err); ok {
		return p
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field == "" {
		return refuse("", "type", "the body must be a JSON object, not %s", t.Value)
	} else if ok {
		field := strings.NewReplacer("RowsRequest.", "", "Wish.", "").Replace(t.Field) // names of embedded structs
		return refuse(field, "type", "%s: expected %s, not %s", field, jsonName(t.Type.String()), t.Value)
	}
	if field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		field = strings.Trim(field, `"`)
		return refuse(field, "unknown_parameter", "%s is no parameter of this request", field)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return refuse("", "json", "the body ends in the middle of its JSON")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return refuse("", "json", "the body is not JSON: %s at byte %d", syntax, syntax.Offset)
	}
	return refuse("", "json", "the body cannot be read: %s", err)
}

// decode reads a single value; nothing may follow it.
func decode(body []byte, into any, strict bool) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	if strict {
		decoder.DisallowUnknownFields()
	}
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, more := decoder.Token(); more != io.EOF {
		return errors.New("there is data after the value")
	}
	return nil
}

// jsonName returns the JSON name of a Go type.
func jsonName(t string) string {
	switch {
	case strings.HasPrefix(t, "int"), strings.HasPrefix(t, "float"):
		return "a number"
	case t == "string":
		return "a string"
	case t == "bool":
		return "true or false"
	}
	return "another kind of value"
}

// cut limits how much of a client's input an error repeats.
func cut(s string) string { return wording.Cut(s, 100) } // bytes
