"""The models, in the order of docs/models.md: where each is published, and what its folder holds. See make.py."""

BGE = "Represent this sentence for searching relevant passages: "
TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
LONG = 2048  # tokens that are read where a model could read more
SHORT = 24  # for encoders of ../architectures, instead of 128 to 512
EXPORT = "optimum-cli export onnx"


def cases(m):
    case, sentence, tokens, config, Net = m.case, m.sentence, m.tokens, m.config, m.Net
    words, cased, xlmr, qwen, modern, gemma, t5, clip = m.word_piece(), m.word_piece(lower=False), m.xlmr(), m.qwen(), m.modern(), m.gemma(), m.t5(), m.clip()
    deberta, mpnet = m.deberta(), m.mpnet()
    hidden = [("last_hidden_state", "tokens")]
    typed = "input_ids attention_mask token_type_ids"
    bert, roberta, code = tokens(words, "BertTokenizer", do_lower_case=True), tokens(xlmr, "XLMRobertaTokenizer"), {"auto_map": {"AutoModel": "modeling.Model"}}
    other = m.safetensors({"model.embed_tokens.weight": m.exact(2, 2)})  # weights that are no BERT's

    def encoder(hub, licence, params, how, t=words, kind=bert, weights="bert", normalize=True, more=None, prompts=None, **rest):
        files = sentence({"mean": "mean_tokens", "cls": "cls_token"}[how], SHORT, normalize, prompts=prompts, dense=rest.get("dense", ()))
        case(hub, licence, params, files | kind | (more or {}), t, weights=weights, pool=how, normalize=normalize, limit=SHORT, **rest)

    # --- sentence-transformers
    st = "sentence-transformers/"
    encoder(st + "all-MiniLM-L6-v2", "Apache-2.0", 22.7, "mean", also="all-MiniLM-L12-v2", note="real weights", prefix=("", ""))
    encoder(st + "all-mpnet-base-v2", "Apache-2.0", 109, "mean", mpnet, tokens(mpnet, "MPNetTokenizer", do_lower_case=True), "mpnet")
    encoder(st + "paraphrase-multilingual-MiniLM-L12-v2", "Apache-2.0", 118, "mean", xlmr, tokens(xlmr, "PreTrainedTokenizerFast"), normalize=False,
            also="paraphrase-multilingual-mpnet-base-v2")
    encoder(st + "multi-qa-mpnet-base-dot-v1", "Apache-2.0", 109, "cls", mpnet, tokens(mpnet, "MPNetTokenizer"), "mpnet", normalize=False)
    encoder(st + "multi-qa-MiniLM-L6-cos-v1", "Apache-2.0", 22.7, "mean")
    encoder(st + "LaBSE", "Apache-2.0", 471, "cls", cased, tokens(cased, "BertTokenizer", do_lower_case=False), dense=[("2_Dense", m.layer(24, 24, True), True)])
    encoder(st + "distiluse-base-multilingual-cased-v2", "Apache-2.0", 135, "mean", cased, tokens(cased, "DistilBertTokenizer", do_lower_case=False), "distilbert",
            normalize=False, dense=[("2_Dense", m.layer(16, 24, True), True)])
    for name in ("sentence-t5-base", "gtr-t5-base"):
        net, dense = Net(t5, hidden), [("2_Dense", m.layer(m.DIMS, m.DIMS, False), False)]
        t5files = {"config.json": {"architectures": ["T5EncoderModel"], "model_type": "t5", "d_model": m.DIMS, "n_positions": 512, "num_heads": 2, "vocab_size": net.vocab}}
        case(st + name, "Apache-2.0", 110, sentence("mean_tokens", dense=dense, new=name.startswith("gtr")) | tokens(t5, "T5Tokenizer") | t5files | {"model.safetensors": other},
             t5, net, dense=dense)

    # --- BAAI, intfloat, thenlper, Alibaba
    encoder("BAAI/bge-small-en-v1.5", "MIT", 33.4, "cls", card=True, state={"query_prefix": BGE}, prefix=("", BGE), also="bge-base-en-v1.5, bge-large-en-v1.5")
    net = Net(xlmr, [("token_embeddings", "tokens"), ("sentence_embedding", "mean")], external="model.onnx_data")
    case("BAAI/bge-m3", "MIT", 568, sentence("cls_token", 8192) | roberta | {"config.json": config("xlm-roberta", net, max_position_embeddings=8194, pad_token_id=1)},
         xlmr, net, pool="cls", limit=LONG, note="dense vectors only")
    e5 = {"query_prefix": "query: ", "document_prefix": "passage: "}
    prefixes = ("passage: ", "query: ")
    encoder("intfloat/e5-small-v2", "MIT", 33.4, "mean", card=True, state=e5, prefix=prefixes, also="e5-base-v2, e5-large-v2")
    encoder("intfloat/multilingual-e5-small", "MIT", 118, "mean", xlmr, roberta, card=True, state=e5, prefix=prefixes)
    encoder("intfloat/multilingual-e5-base", "MIT", 278, "mean", xlmr, roberta, "xlm-roberta", card=True, state=e5, prefix=prefixes)
    for name, state in (("", e5), ("-instruct", {"query_prefix": TASK + " "})):
        net = Net(xlmr, hidden, external="model.onnx_data")
        case("intfloat/multilingual-e5-large" + name, "MIT", 560, sentence("mean_tokens") | roberta | {"config.json": config("xlm-roberta", net, max_position_embeddings=514)},
             xlmr, net, card=True, state=state, prefix=(state.get("document_prefix", ""), state["query_prefix"]))
    case("intfloat/e5-mistral-7b-instruct", "MIT", 7110, sentence("lasttoken", 4096, prompts={"web_search_query": TASK + " "}) | tokens(qwen, "LlamaTokenizer") | {
        "config.json": config("mistral", hidden_size=4096, vocab_size=32000, max_position_embeddings=32768), "model.safetensors.index.json": {"weight_map": {}},
        "model-00001-of-00002.safetensors": other}, refused=["model.safetensors", EXPORT])
    encoder("thenlper/gte-small", "MIT", 33.4, "mean", weights="bert_fp16", also="gte-base, gte-large")
    net = Net(words, hidden, typed)
    case("Alibaba-NLP/gte-base-en-v1.5", "Apache-2.0", 137, sentence("cls_token", 8192, normalize=False) | bert | {"model.safetensors": other, "config.json": config(
        "new", net, max_position_embeddings=8192, **code)}, words, net, pool="cls", normalize=False, limit=LONG, also="gte-large-en-v1.5")
    case("Alibaba-NLP/gte-multilingual-base", "Apache-2.0", 305, sentence("cls_token", 8192) | roberta | {"model.safetensors": other, "config.json": config(
        "new", hidden_size=768, vocab_size=250048, max_position_embeddings=8192, **code)}, refused=["config.json: model_type is 'new'", EXPORT])
    net = Net(xlmr, hidden)
    case("onnx-community/gte-multilingual-base", "Apache-2.0", 305, roberta | {"config.json": config("new", net, max_position_embeddings=8192, **code)}, xlmr, net,
         state={"pooling": "cls"}, pool="cls", normalize=False, limit=LONG)
    case("Alibaba-NLP/gte-Qwen2-1.5B-instruct", "Apache-2.0", 1540, sentence("lasttoken", 8192, prompts={"query": TASK + " "}) | tokens(qwen, "Qwen2Tokenizer") | {
        "config.json": config("qwen2", hidden_size=1536, vocab_size=151646, max_position_embeddings=131072), "model.safetensors.index.json": {"weight_map": {}},
        "model-00001-of-00002.safetensors": other}, refused=["model.safetensors", EXPORT], also="gte-Qwen2-7B-instruct")

    # --- Nomic, Jina, mixedbread, Snowflake, WhereIsAI, NovaSearch
    net = Net(words, hidden, "input_ids token_type_ids attention_mask")
    nomic = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "n_embd": m.DIMS, "n_head": 2, "n_positions": 8192, "vocab_size": net.vocab} | code
    state = {"query_prefix": "search_query: ", "document_prefix": "search_document: "}
    prefixes = ("search_document: ", "search_query: ")
    case("nomic-ai/nomic-embed-text-v1.5", "Apache-2.0", 137, sentence("mean_tokens", 8192, normalize=False) | bert | {"config.json": nomic, "model.safetensors": other},
         words, net, normalize=False, limit=LONG, card=True, state=state | {"dims": 4, "layer_norm": True}, prefix=prefixes)
    case("nomic-ai/nomic-embed-text-v2-moe", "Apache-2.0", 475, sentence("mean_tokens", 512, prompts={"query": "search_query: ", "passage": "search_document: "}) | roberta | {
        "config.json": nomic | {"num_experts": 8}, "model.safetensors": other}, refused=["config.json: model_type is 'nomic_bert'", EXPORT])
    net = Net(modern, hidden)
    case("nomic-ai/modernbert-embed-base", "Apache-2.0", 149, sentence("mean_tokens", 8192) | tokens(modern, "PreTrainedTokenizerFast") | {
        "config.json": config("modernbert", net, max_position_embeddings=8192), "model.safetensors": other}, modern, net, limit=LONG, card=True, state=state, prefix=prefixes)
    case("ibm-granite/granite-embedding-english-r2", "Apache-2.0", 149, sentence("cls_token", 8192, normalize=False) | tokens(modern, "PreTrainedTokenizerFast") | {
        "config.json": config("modernbert", hidden_size=768, vocab_size=50368, max_position_embeddings=8192), "model.safetensors": other},
        refused=["config.json: model_type is 'modernbert'", EXPORT], also="granite-embedding-small-english-r2")
    encoder("ibm-granite/granite-embedding-107m-multilingual", "Apache-2.0", 107, "cls", xlmr, roberta, "xlm-roberta", also="granite-embedding-278m-multilingual")
    net = Net(words, hidden, typed)
    case("jinaai/jina-embeddings-v2-base-en", "Apache-2.0", 137, sentence("mean_tokens", 8192) | bert | {"model.safetensors": other, "config.json": config(
        "bert", net, max_position_embeddings=8192, position_embedding_type="alibi", **code)}, words, net, limit=LONG, graph="model.onnx",
        also="jina-embeddings-v2-small-en, -de, -es, -zh")
    net = Net(xlmr, [("text_embeds", "tokens"), ("13049", "first")], "input_ids attention_mask task_id", external="model.onnx_data", task=(1, 0))
    prompts = {"retrieval.query": "Represent the query for retrieving evidence documents: ", "retrieval.passage": "Represent the document for retrieval: ", "separation": ""}
    case("jinaai/jina-embeddings-v3", "CC-BY-NC-4.0", 572, sentence("mean_tokens", 0, transformer="custom_st.Transformer", prompts=prompts) | tokens(
        xlmr, "XLMRobertaTokenizer") | {"tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 8194}, "config.json": config(
            "xlm-roberta", net, max_position_embeddings=8194, pad_token_id=1, lora_adaptations=["retrieval.query", "retrieval.passage", "separation"], **code)},
        xlmr, net, limit=LONG, prefix=(prompts["retrieval.passage"], prompts["retrieval.query"]))
    case("jinaai/jina-embeddings-v4", "Qwen Research", 3750, {"modules.json": [{"idx": 0, "name": "transformer", "path": "", "type": "custom_st.Transformer"}],
        "config.json": config("qwen2_5_vl", hidden_size=2048, **code), "model.safetensors.index.json": {"weight_map": {}}} | tokens(qwen, "Qwen2TokenizerFast"),
        refused=["model.safetensors", EXPORT])
    encoder("mixedbread-ai/mxbai-embed-large-v1", "Apache-2.0", 335, "cls", weights="bert_fp16", normalize=False, prompts={"query": BGE, "passage": ""}, prefix=("", BGE))
    encoder("Snowflake/snowflake-arctic-embed-m", "Apache-2.0", 109, "cls", prompts={"query": BGE}, prefix=("", BGE),
            also="snowflake-arctic-embed-xs, -s, -l, -m-v1.5")
    net = Net(xlmr, hidden, external="model.onnx_data")
    case("Snowflake/snowflake-arctic-embed-l-v2.0", "Apache-2.0", 568, sentence("cls_token", 8192, prompts={"query": "query: "}) | roberta | {
        "config.json": config("xlm-roberta", net, max_position_embeddings=8194, pad_token_id=1)}, xlmr, net, pool="cls", limit=LONG, prefix=("", "query: "))
    net = Net(xlmr, hidden)
    case("Snowflake/snowflake-arctic-embed-m-v2.0", "Apache-2.0", 305, sentence("cls_token", 8192, prompts={"query": "query: "}) | roberta | {"model.safetensors": other,
        "config.json": config("gte", net, max_position_embeddings=8192, **code)}, xlmr, net, pool="cls", limit=LONG, prefix=("", "query: "))
    encoder("WhereIsAI/UAE-Large-V1", "MIT", 335, "cls", normalize=False, card=True, state={"query_prefix": BGE}, prefix=("", BGE))
    stella = {"s2p_query": TASK + " ", "s2s_query": "Instruct: Retrieve semantically similar text.\nQuery: "}
    dense = [("2_Dense", m.layer(16, m.DIMS, True), False)]
    files = sentence("mean_tokens", 512, normalize=False, dense=dense, prompts=stella) | bert
    case("NovaSearch/stella_en_400M_v5", "MIT", 435, files | {"model.safetensors": other, "config.json": config("new", hidden_size=1024, vocab_size=30528, **code)},
         refused=["config.json: model_type is 'new'", EXPORT])
    net = Net(words, hidden, typed)
    case("NovaSearch/stella_en_400M_v5", "MIT", 435, files | {"config.json": config("new", net, **code)}, words, net, normalize=False, dense=dense, limit=512,
         prefix=("", stella["s2p_query"]), note="your export")

    # --- Google, Qwen
    prompts = {"query": "task: search result | query: ", "document": "title: none | text: ", "BitextMining": "task: search result | query: "}
    state = {"query_prefix": prompts["query"], "document_prefix": prompts["document"]}
    ends = tokens(gemma, "GemmaTokenizer", model_max_length=2048, add_bos_token=True, add_eos_token=True, bos_token="<bos>", eos_token="<eos>")
    dense = [("2_Dense", m.layer(16, m.DIMS, False), False), ("3_Dense", m.layer(m.DIMS, 16, False), False)]
    files = sentence("mean_tokens", 2048, dense=dense, prompts=prompts) | ends
    case("google/embeddinggemma-300m", "Gemma", 308, files | {"model.safetensors": other, "config.json": config("gemma3_text", hidden_size=768, vocab_size=262144,
         max_position_embeddings=2048)}, refused=["config.json: model_type is 'gemma3_text'", EXPORT])
    net = Net(gemma, hidden, vocab=gemma.get_vocab_size() - 1)
    case("google/embeddinggemma-300m", "Gemma", 308, files | {"config.json": config("gemma3_text", net, max_position_embeddings=2048)}, gemma, net, dense=dense, limit=2048,
         prefix=(prompts["document"], prompts["query"]), note="your export")
    net = Net(gemma, hidden + [("sentence_embedding", "mean")], external="model.onnx_data", vocab=gemma.get_vocab_size() - 1)
    case("onnx-community/embeddinggemma-300m-ONNX", "Gemma", 308, ends | {"config.json": config(
        "gemma3_text", net, max_position_embeddings=2048, head_dim=256)}, gemma, net, limit=2048, card=True, state=state, prefix=(prompts["document"], prompts["query"]))
    qwen3 = tokens(qwen, "Qwen2Tokenizer", model_max_length=131072)
    case("Qwen/Qwen3-Embedding-0.6B", "Apache-2.0", 596, sentence("lasttoken", 0, prompts={"query": TASK, "document": ""}) | qwen3 | {"model.safetensors": other,
         "config.json": config("qwen3", hidden_size=1024, vocab_size=151669, max_position_embeddings=32768)}, refused=["config.json: model_type is 'qwen3'", EXPORT],
         also="Qwen3-Embedding-4B, -8B")
    net = Net(qwen, hidden + [(f"present.{i}.{k}", "past") for i in range(2) for k in ("key", "value")], "input_ids attention_mask position_ids", past=2)
    case("onnx-community/Qwen3-Embedding-0.6B-ONNX", "Apache-2.0", 596, qwen3 | {"config.json": config("qwen3", net, max_position_embeddings=32768)}, qwen, net, pool="last",
         normalize=False, limit=LONG, card=True, state={"pooling": "last", "query_prefix": TASK}, prefix=("", TASK))
    net = Net(words, hidden, typed, half=True, short=True)
    case("Xenova/bge-base-en-v1.5", "MIT", 109, bert | {"config.json": config("bert", net)}, words, net, pool="cls", normalize=False, card=True, limit=512,
         graph="onnx/model_fp16.onnx", state={"pooling": "cls", "query_prefix": BGE, "file": "onnx/model_fp16.onnx"}, prefix=("", BGE), note="half precision")
    net = Net(clip, [("text_embeds", "first"), ("last_hidden_state", "tokens")], "input_ids")
    case("Xenova/clip-vit-base-patch32", "MIT", 63.4, tokens(clip, "CLIPTokenizer", model_max_length=77) | {"config.json": {"architectures": ["CLIPModel"], "model_type": "clip",
         "projection_dim": m.DIMS, "text_config": {"max_position_embeddings": 77}}}, clip, net, pool="pooler", normalize=False, limit=77, graph="onnx/text_model.onnx",
         state={"file": "onnx/text_model.onnx"}, note="texts only")
    case(st + "clip-ViT-B-32", "MIT", 151, {"modules.json": [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}],
         "0_CLIPModel/config.json": {"model_type": "clip"}, "0_CLIPModel/model.safetensors": other}, refused=["modules.json", "CLIPModel", "0_CLIPModel", "--file"],
         reason="a model for images and texts in one; take the row above")

    # --- Sparse
    splade = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"},
              {"idx": 1, "name": "1", "path": "1_SpladePooling", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"}]
    pooling = {"1_SpladePooling/config.json": {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": None}}
    masked = {"architectures": ["BertForMaskedLM"]}
    limit = {"sentence_bert_config.json": {"max_seq_length": SHORT}}
    case("naver/splade-cocondenser-ensembledistil", "CC-BY-NC-SA-4.0", 110, bert | pooling | limit | {"modules.json": splade}, words, m.Masked("bert"), pool="splade",
         normalize=False, limit=SHORT, kind="sparse", also="naver/splade-v3")
    for new in (False, True):
        net = Net(words, [("logits", "words")], typed)
        modules = [dict(splade[0], type="sentence_transformers.base.modules.transformer.Transformer"), splade[1]]
        files = bert | {"config.json": config("bert", net, **masked), "sentence_bert_config.json": {"max_seq_length": m.LIMIT} | ({"transformer_task": "fill-mask"} if new else {})}
        hub = ("naver/splade-v3", "CC-BY-NC-SA-4.0") if new else ("prithivida/Splade_PP_en_v1", "Apache-2.0")
        case(*hub, 110, files | (pooling | {"modules.json": modules} if new else {}), words, net, pool="splade", normalize=False, kind="sparse",
             note="your export" if new else "", state={} if new else {"pooling": "splade"})
    paths = {"": splade[0]["type"], "document_1_SpladePooling": splade[1]["type"],
             "query_0_SparseStaticEmbedding": "sentence_transformers.sparse_encoder.models.SparseStaticEmbedding"}
    router = {"types": paths, "structure": {"query": ["query_0_SparseStaticEmbedding"], "document": ["", "document_1_SpladePooling"]}, "parameters": {"default_route": "document"}}
    idf = m.exact(words.get_vocab_size(), scale=3)
    idf[:8] = 0  # special tokens, and letters of no weight
    table = {"query_0_SparseStaticEmbedding/config.json": {"frozen": True}, "query_0_SparseStaticEmbedding/model.safetensors": m.safetensors({"weight": idf}),
             "query_0_SparseStaticEmbedding/tokenizer.json": m.json.loads(words.to_str())}
    pooling = {"document_1_SpladePooling/config.json": {"pooling_strategy": "max", "activation_function": "log1p_relu", "word_embedding_dimension": None}}
    case("opensearch-project/opensearch-neural-sparse-encoding-doc-v3-distill", "Apache-2.0", 67, bert | limit | table | pooling | {"router_config.json": router,
         "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}]}, words, m.Masked("distilbert"), pool="splade",
         normalize=False, limit=SHORT, kind="sparse", twice=True, idf=idf, note="queries are weighed by its table",
         also="opensearch-neural-sparse-encoding-doc-v2-distill, -doc-v2-mini")

    # --- Rerankers
    score = [("logits", "score")]
    one = {"id2label": {"0": "LABEL_0"}}
    net = Net(xlmr, score)
    case("BAAI/bge-reranker-base", "MIT", 278, roberta | {"config.json": config("xlm-roberta", net, architecture="XLMRobertaForSequenceClassification",
         max_position_embeddings=514, **one), "model.safetensors": other}, xlmr, net, rerank=True, limit=512, kind="reranker", also="bge-reranker-large")
    case("BAAI/bge-reranker-v2-m3", "Apache-2.0", 568, roberta | {"config.json": config("xlm-roberta", architecture="XLMRobertaForSequenceClassification",
         max_position_embeddings=8194, hidden_size=1024, **one), "model.safetensors": other}, refused=["config.json", "model.safetensors", EXPORT], kind="reranker")
    net = Net(deberta, score, typed)
    case("mixedbread-ai/mxbai-rerank-base-v1", "Apache-2.0", 184, tokens(deberta, "DebertaV2Tokenizer") | {"config.json": config("deberta-v2", net, architecture=
         "DebertaV2ForSequenceClassification", **one)}, deberta, net, rerank=True, limit=512, kind="reranker", also="mxbai-rerank-xsmall-v1, mxbai-rerank-large-v1")
    case("mixedbread-ai/mxbai-rerank-base-v2", "Apache-2.0", 494, tokens(qwen, "Qwen2Tokenizer") | {"config.json": config("qwen2", architecture="Qwen2ForCausalLM",
         hidden_size=896), "model.safetensors": other}, refused=["config.json: model_type is 'qwen2'", EXPORT], kind="reranker")
    net = Net(xlmr, score)
    case("jinaai/jina-reranker-v2-base-multilingual", "CC-BY-NC-4.0", 278, roberta | {"config.json": config("xlm-roberta", net, architecture=
         "XLMRobertaForSequenceClassification", max_position_embeddings=1026, **one, **code), "model.safetensors": other}, xlmr, net, rerank=True, limit=512, kind="reranker")
    net = Net(words, score, typed)
    case("cross-encoder/ms-marco-MiniLM-L6-v2", "Apache-2.0", 22.7, bert | {"config.json": config("bert", net, architecture="BertForSequenceClassification", sentence_transformers={
         "activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}, **one)}, words, net, rerank=True, raw=True, limit=512, kind="reranker",
         also="ms-marco-MiniLM-L12-v2")

    # --- Static models
    m.static("minishlab/potion-base-8M", "MIT", 7.6, "model2vec", also="potion-base-2M, -4M, -32M, potion-retrieval-32M")
    m.static("minishlab/potion-multilingual-128M", "MIT", 128, "model2vec_unigram")
    m.static(st + "static-retrieval-mrl-en-v1", "Apache-2.0", 31.3, "static_nested", also="static-similarity-mrl-multilingual-v1")
