package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/embedsidecar/embedsidecar/embed"
	"github.com/embedsidecar/embedsidecar/plugins/remote/client"
	"github.com/embedsidecar/embedsidecar/plugins/remote/dialect"
)

// Names of environment variables.
const (
	prefix   = "EMBEDSIDECAR_PLUGIN_REMOTE_"
	modelKey = "EMBEDSIDECAR_PLUGIN_MODEL" // the sidecar's name for the model
)

// settings are the plugin's settings.
type settings struct {
	name    string
	network client.Network
	options client.Options
}

// reader reads settings and collects errors.
type reader struct {
	getenv func(string) string
	errs   []error
}

// readSettings reads all settings. Its error lists every mistake and never contains the value of a secret.
func readSettings(getenv func(string) string) (settings, error) {
	r := &reader{getenv: getenv}
	var s settings
	o := &s.options
	o.Model = r.text("MODEL")
	s.name = getenv(modelKey)
	s.name = cmp.Or(s.name, o.Model)
	r.network(&s.network)
	var err error
	if o.Dialect, err = dialect.Named(r.text("DIALECT")); err != nil {
		r.fail("DIALECT", err)
	} else {
		r.dialect(&s)
	}
	sparse := o.Dialect != nil && o.Dialect.Sparse
	widest := 16000
	if sparse {
		widest = embed.MaxSparseDims
	}
	o.Dims = r.number("DIMS", 0, 0, widest)
	o.Prefixes = [2]string{getenv(prefix + "DOCUMENT_PREFIX"), getenv(prefix + "QUERY_PREFIX")}
	all := r.object("FIELDS")
	for i, name := range []string{"DOCUMENT_FIELDS", "QUERY_FIELDS"} {
		if o.Fields[i] = dialect.Merge(maps.Clone(all), r.object(name)); len(o.Fields[i]) == 0 {
			o.Fields[i] = nil
		}
	}
	o.Truncate = dialect.Truncate(r.choice("TRUNCATE", "end", "start", "error"))
	o.MaxTokens = r.number("MAX_TOKENS", 0, 0, 1<<24)
	o.Normalize = r.choice("NORMALIZE", "true", "false") == "true" && !sparse
	o.Float = r.choice("ENCODING", "base64", "float") == "float"
	o.Most = r.number("CONCURRENCY", 16, 1, 1024)
	o.Timeout = r.duration("TIMEOUT", 20*time.Second)
	o.Pause = 250 * time.Millisecond
	o.Patience = r.duration("PATIENCE", 5*time.Second)
	o.KeyHeader = r.text("API_KEY_HEADER")
	if !isHeader(o.KeyHeader) {
		r.fail("API_KEY_HEADER", errors.New("it is not a header name"))
	}
	o.Remembered = r.text("PROBE_FILE")
	r.key(&s)
	r.batches(o)
	r.sparse(sparse, o)
	r.reranks(&s)
	if o.Dims == 0 && o.DimsBy == client.ByCut {
		r.fail("DIMS_BY", errors.New("cut needs dims, the width to keep"))
	}
	if len(r.errs) > 0 {
		return s, fmt.Errorf("settings of the remote embedder: %w", errors.Join(r.errs...))
	}
	return s, nil
}

// dialect reads the settings that depend on the dialect.
func (r *reader) dialect(s *settings) {
	o := &s.options
	d := o.Dialect
	urls := r.list("URL")
	if len(urls) == 0 && d.URL != "" {
		urls = []string{d.URL}
	}
	if len(urls) == 0 {
		r.fail("URL", fmt.Errorf("it is missing: the dialect %s has no default", d.Name))
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			r.fail("URL", errors.New("one of them is no URL")) // the parser's message would repeat it, with secrets
			continue
		}
		if err := s.network.CheckURL(u); err != nil {
			r.fail("URL", err)
		}
		if slices.ContainsFunc(o.URLs, func(other *url.URL) bool { return *other == *u }) {
			r.fail("URL", fmt.Errorf("%s://%s is given twice", u.Scheme, u.Host))
		}
		o.URLs = append(o.URLs, u)
	}
	if o.Model == "" && d.InfoPath == "" {
		o.Model = s.name
		if o.Model == "" {
			r.fail("MODEL", errors.New("it is missing: the provider's name of the model"))
		}
	}
	if d.PathOf(o.Model) != d.Path && !d.Signed && strings.ContainsFunc(o.Model, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune("/\\?#%:", c)
	}) {
		r.fail("MODEL", errors.New("it is part of the request's path: want letters, digits, dots, dashes and underscores"))
	}
	s.name = cmp.Or(s.name, d.Name)
	by := []string{string(client.ByProvider), string(client.ByModel), string(client.ByCut)}
	if d.Name == "ollama" || d.InfoPath != "" { // older versions and most models have a fixed width
		by[0], by[1] = by[1], by[0]
	}
	o.DimsBy = client.DimsBy(r.choice("DIMS_BY", by...))
	most := 1 << 16
	if d.Limits.Texts == 1 { // its requests hold one text
		most = 1
	}
	o.Limits = dialect.Limits{
		Texts:  r.number("BATCH_TEXTS", d.Limits.Texts, 1, most),
		Tokens: r.number("BATCH_TOKENS", d.Limits.Tokens, 1, 1<<30),
		Bytes:  r.number("BATCH_BYTES", d.Limits.Bytes, 1, 1<<30),
	}
}

// batches enables batch jobs for known providers. Other servers of the same dialect may not support them.
func (r *reader) batches(o *client.Options) {
	values := []string{"none"}
	for _, b := range dialect.AllBatches() {
		values = append(values, b.Name)
	}
	if o.Dialect != nil && len(o.URLs) == 1 && o.URLs[0].String() == o.Dialect.URL &&
		slices.Contains(values, o.Dialect.Name) {
		values = append([]string{o.Dialect.Name}, values...)
	}
	name := r.choice("BATCHES", values...)
	for _, b := range dialect.AllBatches() {
		if b.Name == name {
			o.Batches = b
		}
	}
	if o.Batches != nil && (o.Dialect == nil || o.Dialect.Name != o.Batches.Dialect || len(o.URLs) != 1) {
		r.fail("BATCHES", fmt.Errorf("batch jobs of %s need the dialect %s, and one URL", name, o.Batches.Dialect))
	}
}

// sparse checks the settings for sparse vectors.
func (r *reader) sparse(sparse bool, o *client.Options) {
	if !sparse {
		return
	}
	if o.Dims == 0 {
		r.fail("DIMS", errors.New("it is missing: the size of the model's vocabulary (vocab_size in its config.json), which the server does not report"))
	}
	if o.DimsBy != client.ByModel {
		r.fail("DIMS_BY", errors.New("sparse vectors are as wide as the model's vocabulary: leave it out"))
	}
	if r.text("NORMALIZE") == "true" {
		r.fail("NORMALIZE", errors.New("sparse vectors are not normalized: leave it out"))
	}
}

// reranks checks the settings for rerankers.
func (r *reader) reranks(s *settings) {
	if s.options.Dialect == nil || !s.options.Dialect.Reranks {
		return
	}
	for _, name := range []string{"DIMS", "DIMS_BY", "NORMALIZE", "DOCUMENT_PREFIX", "QUERY_PREFIX", "PROBE_FILE"} {
		if r.getenv(prefix+name) != "" {
			r.fail(name, errors.New("a reranker makes no vectors, and reads texts as they are: leave it out"))
		}
	}
	s.options.Dims, s.options.DimsBy, s.options.Normalize = 1, client.ByModel, false
}

func (r *reader) network(n *client.Network) {
	n.Proxy, n.NoProxy = r.text("PROXY"), r.text("NO_PROXY")
	n.CAFile, n.Cert, n.Key = r.text("TLS_CA_FILE"), r.text("TLS_CERT_FILE"), r.text("TLS_KEY_FILE")
	n.HTTP = r.choice("ALLOW_HTTP", "false", "true") == "true"
	for _, text := range r.list("ALLOW_ADDRESSES") {
		p, err := netip.ParsePrefix(text)
		if addr, single := netip.ParseAddr(text); single == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			r.fail("ALLOW_ADDRESSES", fmt.Errorf("%q is neither an address nor a network", text))
			continue
		}
		n.Allow = append(n.Allow, p)
	}
}

// key decides the source of the key.
func (r *reader) key(s *settings) {
	value, file := r.getenv(prefix+"API_KEY"), r.text("API_KEY_FILE")
	switch {
	case value != "" && file != "":
		r.fail("API_KEY", errors.New("it and API_KEY_FILE are mutually exclusive"))
	case file != "":
		s.options.Key = (&keyFile{path: file}).read
	default:
		if value == "" && s.options.Dialect != nil && s.options.Dialect.Keyed {
			r.fail("API_KEY_FILE", fmt.Errorf("it is missing: %s requires a key", s.options.Dialect.Name))
		}
		value, err := cleanKey([]byte(value))
		if err != nil {
			r.fail("API_KEY", err)
		}
		s.options.Key = func() (string, error) { return value, nil }
		if d := s.options.Dialect; d != nil && d.Signed && value == "" {
			s.options.Sign = (&signer{}).sign
		}
	}
}

// keyFile is a file with a key. It is read again after it was replaced or changed, so that keys can be rotated.
type keyFile struct {
	path string

	mu   sync.Mutex
	info os.FileInfo
	key  string
}

func (k *keyFile) read() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(k.path)
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	if k.info != nil && os.SameFile(info, k.info) && info.ModTime().Equal(k.info.ModTime()) &&
		info.Size() == k.info.Size() {
		return k.key, nil
	}
	data, err := readStart(k.path)
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	key, err := cleanKey(data)
	if err == nil && key == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("read the key from %s: %w", k.path, err)
	}
	k.info, k.key = info, key
	return key, nil
}

const maxKey = 16 << 10

// readStart reads at most the size of a key, and one byte more.
func readStart(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	return io.ReadAll(io.LimitReader(f, maxKey+1))
}

// cleanKey checks that a key is a valid header value.
func cleanKey(data []byte) (string, error) {
	key := bytes.TrimSpace(data)
	if len(key) > maxKey {
		return "", fmt.Errorf("a key has at most %d bytes", maxKey)
	}
	if i := bytes.IndexFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }); i >= 0 {
		return "", fmt.Errorf("byte %d is a space or not ASCII: want only the key, on one line", i)
	}
	return string(key), nil
}

func isHeader(name string) bool {
	return strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (r *reader) fail(name string, err error) {
	r.errs = append(r.errs, fmt.Errorf("%s%s: %w", prefix, name, err))
}

func (r *reader) text(name string) string { return strings.TrimSpace(r.getenv(prefix + name)) }

// list reads values separated by commas or white space.
func (r *reader) list(name string) []string {
	return strings.FieldsFunc(r.getenv(prefix+name), func(c rune) bool { return c == ',' || c <= ' ' })
}

// choice reads one of several values; the first is the default.
func (r *reader) choice(name string, values ...string) string {
	text := r.text(name)
	if text == "" {
		return values[0]
	}
	if !slices.Contains(values, text) {
		r.fail(name, fmt.Errorf("expected one of %s, not %q", strings.Join(values, ", "), text))
		return values[0]
	}
	return text
}

// object reads a JSON object.
func (r *reader) object(name string) map[string]any {
	text := r.text(name)
	if text == "" {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // keep numbers as written
	values := map[string]any{}
	if err := decoder.Decode(&values); err != nil || decoder.More() {
		r.fail(name, errors.New("expected an object of JSON, such as {\"input_type\": \"passage\"}"))
	}
	for _, own := range dialect.Texts {
		if _, taken := values[own]; taken {
			r.fail(name, fmt.Errorf("%s is the field of the texts", own))
		}
	}
	return values
}

func (r *reader) number(name string, unset, low, high int) int {
	text := r.text(name)
	if text == "" {
		return unset
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		r.fail(name, fmt.Errorf("expected a number from %d to %d, not %q", low, high, text))
		return unset
	}
	return n
}

func (r *reader) duration(name string, unset time.Duration) time.Duration {
	text := r.text(name)
	if text == "" {
		return unset
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > time.Hour {
		r.fail(name, fmt.Errorf("expected a duration as 500ms or 20s, not %q", text))
		return unset
	}
	return d
}
