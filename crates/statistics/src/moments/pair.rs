//! Computes means, variances, covariances, correlations and regressions from the moments (sums and sums of
//! products) of a pair of columns.
//!
//! Sums of integers are converted to floats only here, after the mean has been subtracted exactly. So the correlation
//! of columns with a mean far from 0 is as accurate as that of columns with a mean near 0.

use super::mean::Mean;
use super::wide::Wide;

/// Divisor of variances and covariances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The number of rows: the rows are the whole population.
    Population,
    /// One less than the number of rows: the rows are a sample.
    Sample,
}

/// Least-squares line through the rows of a pair, and the other results of SQL's `regr_*` functions. NaN stands for the
/// NULL of SQL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regression {
    /// Slope of the line; NaN if x is constant.
    pub slope: f64,
    /// Value of y on the line at x = 0; NaN if x is constant.
    pub intercept: f64,
    /// Fraction of the variance of y that the line explains; NaN if x is constant, 1 if y is constant and x is not.
    pub r2: f64,
    /// Number of rows of the pair.
    pub count: u64,
    /// The mean of x.
    pub avgx: f64,
    /// The mean of y.
    pub avgy: f64,
    /// Sum of the squared differences of x from its mean.
    pub sxx: f64,
    /// Sum of the squared differences of y from its mean.
    pub syy: f64,
    /// Sum of the products of the differences of x and of y from their means.
    pub sxy: f64,
}

/// Moments of one column of a pair, over the rows of the pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Side {
    pub(crate) mean: f64,
    /// Sum of the squared differences from the mean.
    pub(crate) squares: f64,
    /// Sum of the squared values, without subtracting the mean.
    pub(crate) raw: f64,
    pub(crate) odd: Odd,
    /// Scale of the values: number of decimal digits after the point.
    pub(crate) scale: i32,
}

/// The kinds of non-finite values (NaN, infinities) that occur in a float column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Odd(pub(crate) u8);

impl Odd {
    const NAN: u8 = 1;
    const HIGH: u8 = 2;
    const LOW: u8 = 4;
    /// All kinds of non-finite values.
    pub(crate) const ALL: u8 = 7;

    pub(crate) fn of(value: f64) -> Odd {
        Odd(match value {
            value if value.is_nan() => Odd::NAN,
            f64::INFINITY => Odd::HIGH,
            f64::NEG_INFINITY => Odd::LOW,
            _ => 0,
        })
    }

    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    pub(crate) fn add(&mut self, other: Odd) {
        self.0 |= other.0;
    }

    /// Returns the mean of all values, given the mean of the finite ones: NaN or an infinity if there are non-finite
    /// values.
    fn mean(self, mean: f64) -> f64 {
        match self.0 {
            0 => mean,
            Odd::HIGH => f64::INFINITY,
            Odd::LOW => f64::NEG_INFINITY,
            _ => f64::NAN,
        }
    }
}

/// Moments of a pair of columns, over the rows of the pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pair {
    pub(crate) count: u64,
    pub(crate) x: Side,
    pub(crate) y: Side,
    /// Sum of the products of the differences from the means.
    pub(crate) products: f64,
    /// Sum of the products of the values, without subtracting the means.
    pub(crate) raw: f64,
}

/// Returns the exact sum of products around the means over `count` rows: sum((x - mean x) (y - mean y)).
pub(crate) fn central(count: u64, x: Wide, y: Wide, xy: Wide) -> f64 {
    (Wide::from(count) * xy - x * y).to_f64() / count as f64
}

impl Side {
    /// Computes the moments of a column from exact sums.
    pub(crate) fn exact(count: u64, sum: Wide, squares: Wide, scale: i32) -> Side {
        Side {
            mean: sum.to_f64() / count as f64,
            squares: central(count, sum, sum, squares),
            raw: squares.to_f64(),
            odd: Odd::default(),
            scale,
        }
    }

    /// Computes the moments of a column from its mean and the sum of the squared differences from it.
    pub(crate) fn float(count: u64, mean: Mean, squares: f64, odd: Odd, scale: i32) -> Side {
        let mean = if count == 0 { f64::NAN } else { mean.value() };
        Side { mean, squares, raw: squares + count as f64 * mean * mean, odd, scale }
    }

    pub(crate) fn mean(&self) -> f64 {
        self.odd.mean(scaled(self.mean, self.scale))
    }
}

impl Pair {
    /// Returns the pair with its columns swapped.
    pub(crate) fn swapped(self) -> Pair {
        Pair { x: self.y, y: self.x, ..self }
    }

    pub(crate) fn odd(&self) -> bool {
        self.x.odd.any() || self.y.odd.any()
    }

    fn scale(&self) -> i32 {
        self.x.scale + self.y.scale
    }

    pub(crate) fn covariance(&self, form: Form) -> f64 {
        let divisor = match form {
            Form::Population => self.count,
            Form::Sample => self.count.saturating_sub(1),
        };
        if self.odd() || divisor == 0 {
            f64::NAN
        } else {
            scaled(self.products, self.scale()) / divisor as f64
        }
    }

    pub(crate) fn correlation(&self) -> f64 {
        if self.odd() { f64::NAN } else { ratio(self.products, self.x.squares, self.y.squares) }
    }

    pub(crate) fn cosine(&self) -> f64 {
        if self.odd() || self.count == 0 { f64::NAN } else { ratio(self.raw, self.x.raw, self.y.raw) }
    }

    pub(crate) fn regression(&self) -> Regression {
        let undefined = |value: f64| if self.odd() { f64::NAN } else { value };
        let (avgx, avgy) = (self.x.mean(), self.y.mean());
        let sxx = undefined(scaled(self.x.squares, 2 * self.x.scale));
        let syy = undefined(scaled(self.y.squares, 2 * self.y.scale));
        let sxy = undefined(scaled(self.products, self.scale()));
        let slope = if sxx > 0.0 { sxy / sxx } else { f64::NAN };
        let r2 = match (sxx > 0.0, syy > 0.0) {
            (false, _) => f64::NAN,
            (true, false) => undefined(1.0),
            (true, true) => self.correlation().powi(2),
        };
        Regression { slope, intercept: avgy - slope * avgx, r2, count: self.count, avgx, avgy, sxx, syy, sxy }
    }
}

/// Returns `xy` / sqrt(`xx` `yy`), clamped to the range from -1 to 1, which rounding may exceed; NaN if `xx` or `yy` is
/// 0.
fn ratio(xy: f64, xx: f64, yy: f64) -> f64 {
    if !(xx > 0.0 && yy > 0.0) {
        return f64::NAN;
    }
    let square = xx * yy;
    let ratio = if square.is_normal() { xy / square.sqrt() } else { xy / xx.sqrt() / yy.sqrt() };
    ratio.clamp(-1.0, 1.0)
}

/// Returns `value` / 10^`scale`.
fn scaled(value: f64, scale: i32) -> f64 {
    if scale >= 0 { value / 10f64.powi(scale) } else { value * 10f64.powi(-scale) }
}
