//! Cases that the random comparison with the row-at-a-time interpreter reaches too seldom.
