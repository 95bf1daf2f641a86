//! Commands on HyperLogLogs (sketches that estimate the number of distinct elements), which are strings in the format
//! of Redis.

use super::{Args, Context, Done, KeyHandle, Refusal};
use farpool_statistics::redis_hll::{
    Corrupt, Reader, Registers, Writer, add_to_dense, forget_count, keep_count,
};
use std::borrow::Cow;

impl From<Corrupt> for Refusal {
    fn from(_: Corrupt) -> Self {
        "INVALIDOBJ Corrupted HLL object detected".into()
    }
}

/// Returns a reader of a string that must be a HyperLogLog; `None` if the key is absent.
fn reader<'a>(value: &'a Option<Cow<'_, [u8]>>) -> Result<Option<Reader<'a>>, Refusal> {
    let no_such = "WRONGTYPE Key is not a valid HyperLogLog string value.";
    value.as_deref().map(|value| Reader::new(value).ok_or_else(|| no_such.into())).transpose()
}

pub(super) fn pfadd(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let is_changed = add(&mut context.handle(args[1]), &args[2..])?;
    context.replies.integer(i64::from(is_changed));
    Ok(())
}

/// Adds elements to the HyperLogLog at a key; returns whether the value was created or changed.
fn add(handle: &mut KeyHandle<'_, '_, '_>, elements: &Args<'_>) -> Result<bool, Refusal> {
    let value = handle.string()?;
    let found = reader(&value)?;
    if let Some(value) = found.filter(|value| value.is_dense()) {
        // Elements added to a large set mostly change nothing, so the first one that does is looked for without copying
        // the value.
        let new = elements.iter().position(|element| !value.is_dense_with(element));
        let Some(new) = new else { return Ok(false) };
        let bytes = value.bytes();
        handle.edit(bytes, 0..bytes, |value| {
            elements[new..].iter().for_each(|element| add_to_dense(value, element));
            forget_count(value);
        })?;
        return Ok(true);
    }
    let mut is_changed = found.is_none();
    let mut value = found.map_or_else(|| Ok(Writer::new()), Writer::of)?;
    for element in elements {
        is_changed |= value.add(element)?;
    }
    if is_changed {
        value.forget_count();
        let bytes = value.bytes();
        handle.edit(bytes.len(), 0..bytes.len(), |place| place.copy_from_slice(bytes))?;
    }
    Ok(is_changed)
}

pub(super) fn pfcount(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let count =
        if let [_, key] = args { count(&mut context.handle(key))? } else { merged(context, args)?.0.count() };
    context.replies.integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// Returns the estimated number of distinct elements of one HyperLogLog and caches this number in the value, as Redis
/// does.
fn count(handle: &mut KeyHandle<'_, '_, '_>) -> Result<u64, Refusal> {
    let value = handle.string()?;
    let Some(value) = reader(&value)? else { return Ok(0) };
    if let Some(count) = value.cached_count() {
        return Ok(count);
    }
    let (count, bytes) = (value.count()?, value.bytes());
    // The error is ignored, as the result is right even if it cannot be cached.
    drop(handle.edit(bytes, 0..bytes, |value| keep_count(value, count)));
    Ok(count)
}

/// Merges the HyperLogLogs of all keys of a command; returns the merged registers, and whether any of the values has
/// the dense encoding.
fn merged(context: &mut Context<'_, '_>, args: &Args<'_>) -> Result<(Registers, bool), Refusal> {
    let (mut registers, mut is_dense) = (Registers::new(), false);
    for key in &args[1..] {
        let handle = context.handle(key);
        let value = handle.string()?;
        if let Some(value) = reader(&value)? {
            value.merge_into(&mut registers)?;
            is_dense |= value.is_dense();
        }
    }
    Ok((registers, is_dense))
}

pub(super) fn pfmerge(context: &mut Context<'_, '_>, args: &Args<'_>) -> Done {
    let (registers, is_dense) = merged(context, args)?;
    let mut handle = context.handle(args[1]);
    let before = handle.string()?;
    let mut value = reader(&before)?.map_or_else(|| Ok(Writer::new()), Writer::of)?;
    if is_dense {
        value.make_dense()?;
    }
    value.raise_all(&registers)?;
    value.forget_count();
    let bytes = value.bytes();
    handle.edit(bytes.len(), 0..bytes.len(), |place| place.copy_from_slice(bytes))?;
    context.replies.ok();
    Ok(())
}
