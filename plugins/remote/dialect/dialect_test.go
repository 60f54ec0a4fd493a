package dialect

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRequests pins the requests, which were checked by hand against the providers' documentation.
func TestRequests(t *testing.T) {
	t.Parallel()
	texts := []string{"one", "two"}
	for name, want := range map[string][]string{
		"openai": {
			`{"model":"m","input":["one","two"],"encoding_format":"base64","dimensions":256}`,
			`{"model":"m","input":["one","two"],"encoding_format":"float"}`,
		},
		"voyage": {
			`{"model":"m","input":["one","two"],"input_type":"document","truncation":true,"output_dimension":256,"encoding_format":"base64"}`,
			`{"model":"m","input":["one","two"],"input_type":"query","truncation":false}`,
		},
		"cohere": {
			`{"model":"m","texts":["one","two"],"input_type":"search_document","embedding_types":["float"],"truncate":"END","output_dimension":256}`,
			`{"model":"m","texts":["one","two"],"input_type":"search_query","embedding_types":["float"],"truncate":"NONE"}`,
		},
		"bedrock-titan": {
			`{"inputText":"onetwo","dimensions":256}`,
			`{"inputText":"onetwo","normalize":false}`, // one text in a request
		},
		"bedrock-cohere": {
			`{"texts":["one","two"],"input_type":"search_document","embedding_types":["float"],"truncate":"END","output_dimension":256}`,
			`{"texts":["one","two"],"input_type":"search_query","embedding_types":["float"],"truncate":"NONE"}`,
		},
		"gemini": {
			`{"requests":[{"model":"models/m","content":{"parts":[{"text":"one"}]},"taskType":"RETRIEVAL_DOCUMENT","outputDimensionality":256},{"model":"models/m","content":{"parts":[{"text":"two"}]},"taskType":"RETRIEVAL_DOCUMENT","outputDimensionality":256}]}`,
			`{"requests":[{"model":"models/m","content":{"parts":[{"text":"one"}]},"taskType":"RETRIEVAL_QUERY"},{"model":"models/m","content":{"parts":[{"text":"two"}]},"taskType":"RETRIEVAL_QUERY"}]}`,
		},
		"ollama": {
			`{"model":"m","input":["one","two"],"truncate":true,"dimensions":256}`,
			`{"model":"m","input":["one","two"],"truncate":false}`,
		},
		"tei": {
			`{"inputs":["one","two"],"normalize":true,"truncate":true,"truncation_direction":"Right","dimensions":256}`,
			`{"inputs":["one","two"],"normalize":false,"truncate":false,"truncation_direction":"Right"}`,
		},
		"tei-sparse": {
			`{"inputs":["one","two"],"truncate":true,"truncation_direction":"Right"}`,
			`{"inputs":["one","two"],"truncate":false,"truncation_direction":"Right"}`,
		},
	} {
		d, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range []Request{
			{Model: "m", Texts: texts, Dims: 256, Truncate: CutEnd, Normalize: true},
			{Model: "m", Texts: texts, Truncate: CutNever, Query: true, Float: true},
		} {
			got, err := json.Marshal(d.Body(r))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sorted(t, want[i]), string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

// sorted returns JSON with its fields in encoding/json's order.
func sorted(t *testing.T, text string) string {
	t.Helper()
	var fields map[string]any
	data, err := []byte(nil), json.Unmarshal([]byte(text), &fields)
	if err == nil {
		data, err = json.Marshal(fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestAnswers reads shortened answers from the providers' documentation.
func TestAnswers(t *testing.T) {
	t.Parallel()
	want := []Vector{{0.5, -0.25}, {1, 2}}
	for _, test := range []struct {
		name, body string
		tokens     int
	}{
		{"openai", `{"object":"list","data":[{"object":"embedding","embedding":[0.5,-0.25],"index":0},{"object":"embedding","embedding":[1,2],"index":1}],"model":"text-embedding-ada-002","usage":{"prompt_tokens":8,"total_tokens":8}}`, 8},
		{"openai", `{"object":"list","data":[{"index":1,"embedding":"AACAPwAAAEA="},{"index":0,"embedding":"AAAAPwAAgL4="}],"usage":{"total_tokens":8}}`, 8},
		{"voyage", `{"object":"list","data":[{"object":"embedding","embedding":[0.5,-0.25],"index":0},{"object":"embedding","embedding":[1.0,2.0e0],"index":1}],"model":"voyage-3.5","usage":{"total_tokens":10}}`, 10},
		{"cohere", `{"id":"da6e","texts":["hello","goodbye"],"embeddings":{"float":[[0.5,-0.25],[1,2]]},"meta":{"api_version":{"version":"2","is_experimental":true},"billed_units":{"input_tokens":2.0},"warnings":["x"]},"response_type":"embeddings_by_type"}`, 2},
		{"bedrock-cohere", `{"embeddings":{"float":[[0.5,-0.25],[1,2]]},"id":"da6e","response_type":"embeddings_by_type","texts":["hello","goodbye"]}`, 0},
		{"gemini", `{"embeddings":[{"values":[0.5,-0.25]},{"values":[1,2]}]}`, 0},
		{"ollama", `{"model":"all-minilm","embeddings":[[0.5,-0.25],[1,2]],"total_duration":14143917,"load_duration":1019500,"prompt_eval_count":8}`, 8},
		{"openai", "\xef\xbb\xbf" + `{"data":[{"index":1.0,"embedding":[1e0,0.2e+1]},{"index":0.0,"embedding":[5E-1,-0.25]}],"usage":{"prompt_tokens":8.0,"total_tokens":"8"}}`, 8},
		{"openai", `{"data":[{"embedding":[0.5,-0.25]},{"embedding":[1,2]}],"usage":{"prompt_tokens":{},"total_tokens":-3e99}}`, 0},
		{"ollama", `{"embeddings":[[0.5,-0.25],[1,2]],"prompt_eval_count":null}`, 0},
		{"tei", ` [ [ 0.5 , -0.25 ] , [1,2] ] `, 0},
	} {
		d, err := Named(test.name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Decode([]byte(test.body), 2)
		if err != nil || got.Tokens != test.tokens || !cmp.Equal(want, got.Vectors) {
			t.Errorf("%s: got %v, %v", test.name, got, err)
		}
		if _, err := d.Decode([]byte(test.body), 3); err == nil {
			t.Errorf("%s: two vectors are taken for three texts", test.name)
		}
	}
}

func TestVectors(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for text, want := range map[string]Vector{
		`[]`: {}, `[ ]`: {}, `null`: nil, `[1,null,-1e99]`: {1, nan, -inf}, `""`: {}, `"AACAPw=="`: {1},
		`"\/\/\/\/fw=="`: nil, `"AAA"`: nil, `"AAAA"`: nil,
		`["1"]`: nil, `[[1]]`: nil, `{"a":1}`: nil, `7`: nil, `true`: nil, `[1e-99]`: {0},
	} {
		var got Vector
		err := json.Unmarshal([]byte(text), &got)
		if want == nil && text != "null" && text != `"\/\/\/\/fw=="` {
			if err == nil {
				t.Errorf("%s: got %v, want an error", text, got)
			}
			continue
		}
		if text == `"\/\/\/\/fw=="` { // ////fw==: four bytes, an escaped NaN
			if err != nil || len(got) != 1 || got[0] == got[0] {
				t.Errorf("%s: got %v, %v", text, got, err)
			}
			continue
		}
		same := cmp.Comparer(func(a, b float32) bool { return a == b || a != a && b != b })
		if err != nil || !cmp.Equal(want, got, same) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

// TestExplain reads errors from the providers' documentation and servers' sources.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		body   string
		class  Class
		code   string
	}{
		{
			429, `{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
			Overloaded, "rate_limit_exceeded",
		},
		{429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, Misconfigured, "insufficient_quota"},
		{
			429, `{"error":{"message":"Request too large for text-embedding-3-small in organization org-x on tokens per min ` +
				`(TPM): Limit 30000, Requested 30601. The input or output tokens must be reduced.","type":"tokens",` +
				`"code":"rate_limit_exceeded"}}`,
			TooLarge, "rate_limit_exceeded",
		},
		{
			429, `{"error":{"message":"Rate limit reached for text-embedding-3-small on tokens per min (TPM): Limit 30000, ` +
				`Used 29000, Requested 2000.","type":"tokens","code":"rate_limit_exceeded"}}`,
			Overloaded, "rate_limit_exceeded",
		},
		{429, `{"error":"Model is overloaded","error_type":"Overloaded"}`, Overloaded, "Overloaded"},
		{503, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, Overloaded, ""},
		{
			401, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`,
			Misconfigured, "invalid_api_key",
		},
		{404, `{"error":"model \"x\" not found, try pulling it first"}`, Misconfigured, ""},
		{400, `{"error":{"message":"This model's maximum context length is 8192 tokens, however you requested 9000 tokens","type":"invalid_request_error"}}`, TooLarge, "invalid_request_error"},
		{400, `{"error":"the input length exceeds the context length"}`, TooLarge, ""},
		{413, `{"error":"Input validation error: inputs must have less than 512 tokens. Given: 600","error_type":"Validation"}`, TooLarge, "Validation"},
		{422, `{"error":"batch size 64 > maximum allowed batch size 32","error_type":"Validation"}`, TooLarge, "Validation"},
		{400, `{"message":"invalid request: total number of texts must be at most 96 - received 97"}`, Rejected, ""},
		{
			400, `{"detail":"Request to model 'voyage-2' failed. The max allowed tokens per submitted batch is 320000."}`,
			TooLarge, "",
		},
		{422, `{"detail":[{"loc":["body","input"],"msg":"field required","type":"value_error.missing"}]}`, Rejected, ""},
		{400, `{"error":{"message":"filtered","code":"content_filter"}}`, Refused, "content_filter"},
		{400, `{"message":"400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9301"}`, TooLarge, ""},
		{400, `{"message":"Malformed input request: #/texts/0: expected maxLength: 2048, actual: 3000, please reformat your input and try again."}`, TooLarge, ""},
		{429, `{"message":"Too many requests, please wait before trying again."}`, Overloaded, ""},
		{403, `{"message":"The security token included in the request is expired"}`, Misconfigured, ""},
		{424, `{"error":"inference failed","error_type":"Backend"}`, Broken, "Backend"},
		{500, ``, Broken, ""},
		{502, `<html>`, Down, ""},
		{504, ``, Down, ""},
		{301, ``, Misconfigured, ""},
		{204, ``, Broken, ""},
		{418, `{}`, Rejected, ""},
		{400, `{"error":{"message":"no","code":"what a key sk-123 looks like"}}`, Rejected, ""},
		{400, `{"error":null,"message":"no"}`, Rejected, ""},
		{400, "This model's maximum context length is 512 tokens\n", TooLarge, ""},
		{400, `<html>maximum context length</html>`, Rejected, ""},
		{400, `{"errors":[{"message":"context length exceeded","code":5006}],"success":false}`, TooLarge, ""},
		{
			400, "\xef\xbb\xbf" + `[{"error":{"code":400,"message":"the input is too long","status":"INVALID_ARGUMENT"}}]`,
			TooLarge, "",
		},
		{500, `{"error":{"code":500,"message":"input is too large to process. increase the physical batch size","type":"server_error"}}`, TooLarge, "server_error"},
		{500, `{"error":"too many open files"}`, Broken, ""},
		{500, "out of memory", Broken, ""},
	} {
		f := Explain(test.status, []byte(test.body))
		if f.Class != test.class || f.Code != test.code {
			t.Errorf("%d %s: class %d code %q, want %d %q", test.status, test.body, f.Class, f.Code, test.class, test.code)
		}
		if f.Message == "" && strings.Contains(test.body, `"no"`) {
			t.Errorf("%d %s: the message is lost", test.status, test.body)
		}
	}
}

// Gateways return errors with status 200.
func TestInside(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`{"error":{"message":"slow down","code":429}}`: 429, `{"error":{"message":"no","status":401,"code":"x"}}`: 401,
		`{"error":"boom"}`: 500, `{"error":{"code":7}}`: 500,
		`{"error":{"message":"maximum context length is 512 tokens","code":"x"}}`: 400,
		`{"error":{"code":"content_filter"}}`:                                     400,
		`{"error":null,"data":[]}`:                                                0, `{"data":[]}`: 0, `[]`: 0, `error`: 0,
		``: 0,
	} {
		if status, found := Inside([]byte(body)); status != want || found != (want != 0) {
			t.Errorf("%s: %d, %t, want %d", body, status, found, want)
		}
	}
}

// FuzzDecode: any answer is an error or the right number of vectors, and no error quotes it.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`[[1,2]]`, `{"data":[{"index":0,"embedding":"AACAPw=="}]}`,
		`{"embeddings":{"float":[[null]]}}`, `{"embeddings":[[1e999]]}`, `{"error":{"message":"canary-canary"}}`,
	} {
		f.Add([]byte(seed), 1)
	}
	f.Fuzz(func(t *testing.T, body []byte, count int) {
		for _, d := range All() {
			a, err := d.Decode(body, count)
			if err == nil && len(a.Vectors) != count {
				t.Errorf("%s: %d vectors for %d texts", d.Name, len(a.Vectors), count)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: the error repeats the answer: %v", d.Name, err)
			}
		}
		if fault := Explain(http.StatusBadRequest, body); len(fault.Code) > 64 {
			t.Errorf("a code of %d bytes", len(fault.Code))
		}
		_, _ = ReadInfo(body)
		_, _ = Inside(body)
	})
}

// A user's fields are merged into the request, objects recursively; null removes a field.
func TestWrite_MergesFields(t *testing.T) {
	t.Parallel()
	body := openAI.Body(Request{Model: "m", Texts: []string{"one"}, Dims: 256})
	all := map[string]any{"options": map[string]any{"num_ctx": 8192, "seed": 1}, "encoding_format": nil}
	for _, test := range []struct {
		fields map[string]any
		want   string
	}{
		{nil, `{"dimensions":256,"encoding_format":"base64","input":["one"],"model":"m"}`},
		{
			all,
			`{"dimensions":256,"input":["one"],"model":"m","options":{"num_ctx":8192,"seed":1}}`,
		},
		{
			Merge(maps.Clone(all), map[string]any{
				"options": map[string]any{"seed": nil}, "dimensions": nil, "output_dimension": 64,
			}),
			`{"input":["one"],"model":"m","options":{"num_ctx":8192},"output_dimension":64}`,
		},
	} {
		got, err := Write(body, test.fields)
		if err != nil || string(got) != test.want {
			t.Errorf("%v: %s, %v, want %s", test.fields, got, err, test.want)
		}
	}
	if fmt.Sprint(all["options"]) != "map[num_ctx:8192 seed:1]" {
		t.Errorf("what was merged into is changed: %v", all)
	}
}

// Servers' messages about a limit of texts, which are distinguished from those about tokens.
func TestMostTexts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		message string
		want    int
	}{
		{"* BatchEmbedContentsRequest.requests: at most 100 requests can be in one batch", 100},
		{"AiError: Bad input: Error: oneOf at '/' not met, 0 matches: Array length 512 at '/text' > 'maxItems' 100", 100},
		{"'$.input' is invalid. maxItems: 128", 128},
		{"batch size 512 > maximum allowed batch size 32", 32},
		{"invalid request: total number of texts must be at most 96 - received 97", 96},
		{"The batch size should not be larger than 10.", 10},
		{"input array must not have more than 256 items", 256},
		{"Too many inputs in request, max 64 inputs", 64},
		{"maximum context length is 100 tokens", 0},
		{"inputs must have at most 100 characters", 0},
		{"at most 9999 requests", 0}, // the request had fewer texts, so this is not its limit
		{"at most 0 requests", 0},
		{"the input is too large", 0},
		{"", 0},
	} {
		if got, _ := MostTexts(test.message, 512); got != test.want {
			t.Errorf("%q: %d, want %d", test.message, got, test.want)
		}
	}
}
