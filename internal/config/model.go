package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ModelSettings are a user's own, in place of what a model's folder says. A plugin gets them as EMBEDSIDECAR_PLUGIN_*
// variables; onnx follows all of them. What changes a vector changes the model's fingerprint.
type ModelSettings struct {
	Dims           int     // numbers of each vector that are kept (Matryoshka models); 0: all
	Pooling        string  // "mean", "cls" or "last"; "": as the folder says
	Normalize      *bool   // vectors of length 1; nil: as the folder says
	MaxTokens      int     // tokens that are read of a text; 0: as the folder says
	Truncate       string  // the side of a longer text that is cut off, "right" or "left"; "": as the folder says
	DocumentPrefix *string // put before each document; nil: as the folder says
	QueryPrefix    *string // put before each query; nil: as the folder says
	Precision      string  // "fp32" or "int8"; "": what model.onnx holds
	Provider       string  // what computes: "cpu", "auto", "cuda", ...; "": cpu
}

// modelMistakes are what is wrong with the settings of a model, by their names and for both that know them, until
// settle decides. Settings that are right are in it with nil.
type modelMistakes struct{ own, remote map[string]error }

const (
	maxModelDims   = 16_000
	maxModelTokens = 1 << 20
	maxPrefixBytes = 4096
)

// addTo adds the settings to the schema of a model. The plugin remote has settings of its own by some of the same
// names, and which plugin a model has may be said further down: both are kept, and settle decides.
func (m *ModelSettings) addTo(s *schema) modelMistakes {
	own := map[string]func(string) error{
		"dims":            intoNumber(&m.Dims, maxModelDims),
		"max_tokens":      intoNumber(&m.MaxTokens, maxModelTokens),
		"pooling":         intoOneOf(&m.Pooling, "mean", "cls", "last", "splade"),
		"truncate":        intoOneOf(&m.Truncate, "right", "left"),
		"precision":       intoOneOf(&m.Precision, "fp32", "fp16", "int8"),
		"provider":        intoOneOf(&m.Provider, "cpu", "auto", "cuda", "tensorrt", "openvino", "coreml"),
		"document_prefix": intoPrefix(&m.DocumentPrefix),
		"query_prefix":    intoPrefix(&m.QueryPrefix),
		"normalize": func(v string) error {
			on, err := parseBool(v)
			if err == nil {
				m.Normalize = &on
			}
			return err
		},
	}
	found := modelMistakes{map[string]error{}, map[string]error{}}
	for name, set := range own {
		f := s.field(name)
		remote := f.value
		f.value = func(v string) error {
			found.own[name] = set(v)
			if remote != nil {
				found.remote[name] = remote(v)
			} else {
				found.remote[name] = errors.New("it belongs to models of the plugin onnx, not remote")
			}
			return nil
		}
	}
	return found
}

// settle keeps the settings that belong to the model's plugin, and hands the mistakes in them to fail, by their names.
func (m *Model) settle(found modelMistakes, fail func(name string, err error)) {
	mistakes := found.own
	if m.Plugin == remotePlugin || m.Remote.elsewhere() {
		mistakes, m.ModelSettings = found.remote, ModelSettings{}
	} else {
		for name := range found.own {
			delete(m.Remote.Settings, remoteFields()[name])
		}
		if len(m.Remote.Settings) == 0 {
			m.Remote.Settings = nil
		}
	}
	for name, err := range mistakes {
		if err != nil {
			fail(name, err)
		}
	}
}

// env returns the settings as a plugin gets them.
func (m *ModelSettings) env() map[string]string {
	env := map[string]string{}
	put := func(name, value string) {
		if value != "" {
			env[pluginEnvPrefix+name] = value
		}
	}
	number := func(name string, n int) {
		if n != 0 {
			put(name, strconv.Itoa(n))
		}
	}
	number("DIMS", m.Dims)
	number("MAX_TOKENS", m.MaxTokens)
	put("POOLING", m.Pooling)
	put("TRUNCATE", m.Truncate)
	put("PRECISION", m.Precision)
	put("PROVIDER", m.Provider)
	if m.Normalize != nil {
		put("NORMALIZE", strconv.FormatBool(*m.Normalize))
	}
	for name, prefix := range map[string]*string{"DOCUMENT_PREFIX": m.DocumentPrefix, "QUERY_PREFIX": m.QueryPrefix} {
		if prefix != nil { // it may be empty
			env[pluginEnvPrefix+name] = *prefix
		}
	}
	return env
}

func intoNumber(field *int, high int) func(string) error {
	return func(v string) error {
		n, err := parseInt(v, 1, high)
		if err == nil {
			*field = n
		}
		return err
	}
}

func intoOneOf(field *string, choices ...string) func(string) error {
	return func(v string) error {
		choice, err := oneOf(v, choices...)
		if err == nil {
			*field = choice
		}
		return err
	}
}

func intoPrefix(field **string) func(string) error {
	return func(v string) error {
		switch {
		case strings.ContainsRune(v, 0):
			return errors.New("a value cannot hold a NUL byte")
		case len(v) > maxPrefixBytes:
			return fmt.Errorf("expected at most %d bytes, not %d", maxPrefixBytes, len(v))
		}
		*field = &v
		return nil
	}
}
