//! The `tokenizers` crate behind a few C functions.
//!
//! A tokenizer is made of the bytes of a tokenizer.json and used from any number of threads. Truncation and padding that the
//! file asks for are left out: they are what its last user had set, and the caller cuts by itself. No panic leaves this
//! library; it becomes an error.

use std::collections::HashSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::{ptr, slice, str};

use tokenizers::{Encoding, Model, Tokenizer};

/// An answer of `est_new` and `est_encode`. What it points to is freed by `est_free_answer`.
#[repr(C)]
pub struct Answer {
    /// Token ids; for `est_new` the special tokens before a text, then those after it.
    ids: *mut u32,
    ids_len: usize,
    /// `est_encode`: how many of the ids came from the text as anything but special tokens. `est_new`: how many of the ids stand before a text.
    count: usize,
    /// The largest id that the tokenizer can give (`est_new`).
    max_id: u32,
    /// 1: a token in or around a text has another type than 0 (`est_new`).
    typed: u32,
    /// What is wrong, in UTF-8; null when nothing is.
    error: *mut u8,
    error_len: usize,
}

impl Answer {
    fn none() -> Self {
        Answer { ids: ptr::null_mut(), ids_len: 0, count: 0, max_id: 0, typed: 0, error: ptr::null_mut(), error_len: 0 }
    }

    fn ids(ids: Vec<u32>, count: usize) -> Self {
        let ids = Box::leak(ids.into_boxed_slice());
        Answer { ids: ids.as_mut_ptr(), ids_len: ids.len(), count, ..Answer::none() }
    }

    fn error(message: String) -> Self {
        let bytes = Box::leak(message.into_bytes().into_boxed_slice());
        Answer { error: bytes.as_mut_ptr(), error_len: bytes.len(), ..Answer::none() }
    }
}

/// What C holds a pointer to.
pub struct Handle {
    tokenizer: Tokenizer,
    special: HashSet<u32>,
}

/// Is in no vocabulary: the model gives its token for what it does not know.
const UNKNOWN: &str = "\u{10ffff}";

/// Stands for the text when the special tokens around it are looked for. No vocabulary is that large.
const TEXT: u32 = u32::MAX;

fn load(json: &[u8]) -> Result<(Handle, Answer), String> {
    let mut tokenizer = Tokenizer::from_bytes(json).map_err(|e| e.to_string())?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
    let mut special: HashSet<u32> =
        tokenizer.get_added_tokens_decoder().iter().filter(|(_, token)| token.special).map(|(id, _)| *id).collect();
    // It stands for something in the text, though files list it among the special tokens. A model without one has no tokens here.
    for unknown in tokenizer.get_model().tokenize(UNKNOWN).unwrap_or_default() {
        special.remove(&unknown.id);
    }
    let text = Encoding::new(
        vec![TEXT],
        vec![0],
        vec!["text".to_string()],
        vec![Some(0)],
        vec![(0, 4)],
        vec![0],
        vec![1],
        vec![],
        Default::default(),
    );
    let around = tokenizer.post_process(text, None, true).map_err(|e| e.to_string())?;
    let ids = around.get_ids();
    if ids.iter().filter(|id| **id == TEXT).count() != 1 {
        return Err("post_processor: it does not put the text in once".to_string());
    }
    let before = ids.iter().position(|id| *id == TEXT).unwrap_or(0);
    let rest: Vec<u32> = ids.iter().copied().filter(|id| *id != TEXT).collect();
    let most = tokenizer.get_vocab(true).into_values().chain(rest.iter().copied()).max();
    let Some(max_id) = most else { return Err("model: the vocabulary is empty".to_string()) };
    let typed = u32::from(around.get_type_ids().iter().any(|kind| *kind != 0));
    let answer = Answer { max_id, typed, ..Answer::ids(rest, before) };
    Ok((Handle { tokenizer, special }, answer))
}

fn encode(handle: &Handle, text: &[u8]) -> Result<Answer, String> {
    let text = str::from_utf8(text).map_err(|e| e.to_string())?;
    let encoding = handle.tokenizer.encode_fast(text, false).map_err(|e| e.to_string())?;
    let ids = encoding.get_ids().to_vec();
    let content = ids.iter().filter(|id| !handle.special.contains(id)).count();
    Ok(Answer::ids(ids, content))
}

/// Where each token ends, in bytes of the text: never decreasing, and never inside of a character. What a normaliser left out or
/// made one with the character before it (an accent, say) belongs to the token before it, so that nobody cuts between the two.
fn ends(handle: &Handle, text: &[u8]) -> Result<Answer, String> {
    let text = str::from_utf8(text).map_err(|e| e.to_string())?;
    u32::try_from(text.len()).map_err(|e| e.to_string())?;
    let encoding = handle.tokenizer.encode(text, false).map_err(|e| e.to_string())?;
    let offsets = encoding.get_offsets();
    let border = |mut at: usize| {
        while !text.is_char_boundary(at) {
            at += 1;
        }
        at
    };
    let mut ends = vec![0; offsets.len()];
    let mut next = text.len(); // where the token behind begins
    for (i, (start, end)) in offsets.iter().enumerate().rev() {
        ends[i] = border((*end).min(text.len()));
        if i + 1 < ends.len() && offsets[i] == offsets[i + 1] {
            ends[i] = ends[i + 1]; // several of one character
        } else if ends[i] < next {
            ends[i] += text[ends[i]..next].trim_end().len();
        }
        next = border((*start).min(text.len()));
    }
    let mut last = 0;
    let ends = ends.into_iter().map(|end| {
        last = last.max(end);
        last as u32
    });
    Ok(Answer::ids(ends.collect(), 0))
}

fn guarded<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err("the tokenizers library panicked".to_string()))
}

unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    slice::from_raw_parts(data, len)
}

/// Makes a tokenizer of a tokenizer.json, or answers with an error and returns null.
///
/// # Safety
/// `json` points to `len` bytes and `answer` to an `Answer`.
#[no_mangle]
pub unsafe extern "C" fn est_new(json: *const u8, len: usize, answer: *mut Answer) -> *mut Handle {
    match guarded(|| load(bytes(json, len))) {
        Ok((handle, found)) => {
            *answer = found;
            Box::into_raw(Box::new(handle))
        }
        Err(message) => {
            *answer = Answer::error(message);
            ptr::null_mut()
        }
    }
}

/// Answers with the tokens of a text in UTF-8, without the special ones around it.
///
/// # Safety
/// `handle` is from `est_new` and not freed, `text` points to `len` bytes and `answer` to an `Answer`.
#[no_mangle]
pub unsafe extern "C" fn est_encode(handle: *const Handle, text: *const u8, len: usize, answer: *mut Answer) {
    *answer = guarded(|| encode(&*handle, bytes(text, len))).unwrap_or_else(Answer::error);
}

/// Answers with the offset in bytes after each of the tokens of a text in UTF-8, in the place of ids.
///
/// # Safety
/// As `est_encode`.
#[no_mangle]
pub unsafe extern "C" fn est_ends(handle: *const Handle, text: *const u8, len: usize, answer: *mut Answer) {
    *answer = guarded(|| ends(&*handle, bytes(text, len))).unwrap_or_else(Answer::error);
}

/// Frees what an answer points to.
///
/// # Safety
/// `answer` was filled by another function and was not freed before.
#[no_mangle]
pub unsafe extern "C" fn est_free_answer(answer: *mut Answer) {
    let a = &mut *answer;
    if !a.ids.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(a.ids, a.ids_len)));
    }
    if !a.error.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(a.error, a.error_len)));
    }
    *a = Answer::none();
}

/// Frees a tokenizer.
///
/// # Safety
/// `handle` is from `est_new`, was not freed before, and nothing uses it.
#[no_mangle]
pub unsafe extern "C" fn est_free(handle: *mut Handle) {
    if !handle.is_null() {
        drop(Box::from_raw(handle));
    }
}
