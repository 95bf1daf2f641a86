//! Selects the columns of a table that are displayed, and their widths, so that a line fits the screen. Texts are first
//! truncated in the middle, down to [`LEAST`] characters. If that is not enough, columns in the middle of the table are
//! left out and replaced by a column `…`. Numbers are never truncated.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Minimum width to which texts and headers are truncated before whole columns are left out.
const LEAST: usize = 10;

/// Replacement of text and columns that are left out.
pub const GAP: &str = "…";

/// The width that a column needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Width of its header.
    pub header: usize,
    /// Width of its widest value.
    pub values: usize,
    /// Whether values may be truncated.
    pub is_text: bool,
}

impl Wish {
    /// Returns the width at which nothing in the column is truncated.
    pub fn natural(self) -> usize {
        self.header.max(self.values)
    }

    fn least(self) -> usize {
        let values = if self.is_text { self.values.min(LEAST) } else { self.values };
        values.max(self.header.min(LEAST))
    }
}

/// A column on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The index of the column; `None` for the replacement of columns that are left out.
    pub column: Option<usize>,
    /// Width in terminal columns.
    pub width: usize,
}

/// Returns the columns to display and their widths, in at most `room` characters with `between` characters between two
/// columns. At least one column is displayed, even if it does not fit.
pub fn slots(wishes: &[Wish], room: Option<usize>, between: usize) -> Vec<Slot> {
    let whole = || wishes.iter().map(|wish| wish.natural()).collect::<Vec<_>>();
    let widths = match room {
        None => Some(whole()),
        Some(room) => fitted(wishes, room.saturating_sub(between * wishes.len().saturating_sub(1))),
    };
    let slot = |column: usize, width: usize| Slot { column: Some(column), width };
    if let Some(widths) = widths {
        return widths.into_iter().enumerate().map(|(column, width)| slot(column, width)).collect();
    }
    let room = room.unwrap_or(usize::MAX);
    let gap = Slot { column: None, width: GAP.width() };
    let (left, right) = kept(wishes, room.saturating_sub(gap.width), between);
    let shown = || (0..left).chain(wishes.len() - right..wishes.len());
    let kept: Vec<Wish> = shown().map(|column| wishes[column]).collect();
    let inner = room.saturating_sub(gap.width + between * kept.len());
    let widths = fitted(&kept, inner).unwrap_or_else(|| kept.iter().map(|wish| wish.least()).collect());
    let mut slots: Vec<Slot> = shown().zip(widths).map(|(column, width)| slot(column, width)).collect();
    if left + right < wishes.len() {
        slots.insert(left, gap);
    }
    slots
}

/// Returns the widths of columns that have `room` characters in total; `None` if they do not fit.
fn fitted(wishes: &[Wish], room: usize) -> Option<Vec<usize>> {
    let width = |wish: &Wish, most: usize| wish.natural().min(most).max(wish.least());
    let needed = |most: usize| wishes.iter().map(|wish| width(wish, most)).fold(0, usize::saturating_add);
    if needed(0) > room {
        return None;
    }
    // The largest width that no cut column exceeds, and the remaining characters for the first of these columns.
    let (mut fits, mut exceeds) = (0, room + 1);
    while exceeds - fits > 1 {
        let most = fits + (exceeds - fits) / 2;
        *(if needed(most) <= room { &mut fits } else { &mut exceeds }) = most;
    }
    let mut spare = room - needed(fits);
    let widened = wishes.iter().map(|wish| {
        let width = width(wish, fits);
        let more = usize::from(width < wish.natural() && spare > 0);
        spare -= more;
        width + more
    });
    Some(widened.collect())
}

/// Returns how many columns at the beginning and at the end fit into `room`, if they are added alternately.
fn kept(wishes: &[Wish], mut room: usize, between: usize) -> (usize, usize) {
    let (mut left, mut right) = (0, 0);
    while left + right < wishes.len() {
        let is_left = left <= right;
        let next = if is_left { left } else { wishes.len() - 1 - right };
        let needed = wishes[next].least() + between;
        if needed > room && left > 0 {
            break;
        }
        room = room.saturating_sub(needed);
        *(if is_left { &mut left } else { &mut right }) += 1;
    }
    (left, right)
}

/// Truncates the text in the middle to at most `width` columns of a terminal.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let room = width.saturating_sub(GAP.width());
    let head = taken(text.chars(), room.div_ceil(2));
    let rest: String = text.chars().rev().collect();
    let tail: String = taken(rest.chars(), room / 2).chars().rev().collect();
    head + GAP + &tail
}

/// Takes characters as long as they fit `room`.
fn taken(characters: impl Iterator<Item = char>, mut room: usize) -> String {
    let fits = |c: &char| {
        let width = c.width().unwrap_or(1);
        let fits = width <= room;
        room = if fits { room - width } else { 0 };
        fits
    };
    characters.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(width: usize) -> Wish {
        Wish { header: 1, values: width, is_text: true }
    }

    fn number(width: usize) -> Wish {
        Wish { header: 1, values: width, is_text: false }
    }

    fn widths(wishes: &[Wish], room: usize) -> Vec<(Option<usize>, usize)> {
        slots(wishes, Some(room), 3).iter().map(|slot| (slot.column, slot.width)).collect()
    }

    #[test]
    fn the_widest_texts_are_cut_first_and_numbers_never() {
        let wishes = [number(15), text(5), text(100), text(30)];
        assert_eq!(widths(&wishes, 200), [(Some(0), 15), (Some(1), 5), (Some(2), 100), (Some(3), 30)]);
        assert_eq!(widths(&wishes, 80), [(Some(0), 15), (Some(1), 5), (Some(2), 26), (Some(3), 25)]);
        assert_eq!(widths(&wishes, 49), [(Some(0), 15), (Some(1), 5), (Some(2), 10), (Some(3), 10)]);
        assert_eq!(widths(&wishes, 48), [(Some(0), 15), (Some(1), 5), (None, 1), (Some(3), 18)]);
        assert_eq!(slots(&wishes, None, 3)[2].width, 100);
    }

    #[test]
    fn columns_in_the_middle_are_left_out() {
        let wishes: Vec<Wish> = (0..100).map(|_| number(8)).collect();
        let shown: Vec<Option<usize>> = widths(&wishes, 40).iter().map(|(column, _)| *column).collect();
        assert_eq!(shown, [Some(0), Some(1), None, Some(99)]);
        for room in 0..200 {
            let slots = slots(&wishes, Some(room), 3);
            let taken: usize = slots.iter().map(|slot| slot.width).sum::<usize>() + 3 * (slots.len() - 1);
            assert!(taken <= room.max(12), "{room}: {slots:?}");
        }
    }

    #[test]
    fn one_column_is_always_shown() {
        assert_eq!(widths(&[number(30)], 10), [(Some(0), 30)]);
        assert_eq!(widths(&[text(30)], 3), [(Some(0), 10)]);
        assert_eq!(slots(&[], Some(10), 3), []);
    }

    #[test]
    fn long_texts_keep_both_ends() {
        assert_eq!(cut("s3://bucket/part-7.parquet", 12), "s3://b…rquet");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "a…d");
        assert_eq!(cut("東京都千代田区", 7), "東…区");
        assert_eq!(cut("abcd", 1), "…");
    }
}
