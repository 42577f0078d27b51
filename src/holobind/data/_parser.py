"""The compiled parser of `l1,l2 f:v f:v` lines. Importing this module imports numba, so it is imported lazily.

The parser reads a block of whole lines and releases the GIL. It reports a syntax error as a code and a position, from
which `sparse_text` makes the error message. The block ends with a line feed, so that no loop needs a bounds check.
"""

import numpy as np

from holobind._jit import compiled

# Error codes.
OK, BAD_TOKEN, BAD_LABEL, LABEL_RANGE, BAD_FEATURE, FEATURE_RANGE, BAD_VALUE, DUPLICATE_FEATURE = range(8)

# Powers of ten from 1e-64 to 1e64, each the double nearest to it.
MAX_EXPONENT = 64
POWERS_OF_TEN = np.array([float(f"1e{n}") for n in range(-MAX_EXPONENT, MAX_EXPONENT + 1)])

TAB, LF, CR, SPACE, HASH, PLUS, COMMA, MINUS, DOT, ZERO, COLON, UPPER_E, LOWER_E = (
    np.uint8(ord(c)) for c in "\t\n\r #+,-.0:Ee"
)
SHELL_GAPS = np.array([4**k + 3 * 2 ** (k - 1) + 1 for k in range(12, 0, -1)] + [1])  # Sedgewick's of 1982
MAX_DIGITS = 19  # digits of an integer that always fits in 64 bits
FLOAT32_NORMAL_RANGE = (1.2e-38, 3.4e38)
MAX_NUMBER = 4294967296  # ids are clipped to this number, which is above every allowed id


@compiled(inline="always")
def _is_end(c):
    return c == SPACE or c == LF or c == CR or c == TAB


@compiled()
def _sort_row(ids, values, first, last):
    """Sort one row by feature id in place and return whether an id occurs twice.

    This is a Shell sort, because numba takes 10 s to compile numpy's sort. With these gaps it takes O(n^(4/3)) steps
    whatever the order is; with halves of the length, a row can be written that takes O(n^2).
    """
    for gap in SHELL_GAPS:
        for k in range(first + gap, last):
            number, value, j = ids[k], values[k], k
            while j >= first + gap and ids[j - gap] > number:
                ids[j] = ids[j - gap]
                values[j] = values[j - gap]
                j -= gap
            ids[j] = number
            values[j] = value
    for k in range(first + 1, last):
        if ids[k] == ids[k - 1]:
            return True
    return False


@compiled(boundscheck=False)
def parse(
    text,  # uint8 in: whole lines; the last byte used is a line feed
    first,  # position at which the first line begins
    size,  # position at which the last line ends
    base,  # id of the first feature and of the first label: 0 or 1
    n_features,  # ids at or above these two are errors
    n_labels,
    empty_is_row,  # whether an empty line is a row
    labels,  # int32 out: label ids, row after row
    label_counts,  # int32 out: labels of each row
    ids,  # int32 out: feature ids, row after row
    values,  # float32 out: feature values
    feature_counts,  # int32 out: features of each row
    inexact,  # int64 out: (entry, first byte, last byte) of each value that needs exact arithmetic
):
    """Parse whole lines into the output arrays.

    Returns (error code, position of the error, rows, labels, feature entries, inexact values, lines, empty lines,
    largest label id, largest feature id).

    A value is m * 10^e with m of at most 19 digits. m and 10^e as doubles, and their product, each have an error of at
    most half a unit in the last place, so the product has an error of at most 4 units. Rounding it to float32 drops
    29 bits. Unless these bits lie within 8 units of one half, the result is the float32 nearest to the text. The other
    values, which are rare, and values outside the table of powers or outside float32's normal range are listed in
    `inexact`.
    """
    i = np.uint64(first)
    one = np.uint64(1)
    size = np.uint64(size)
    rows = 0
    n_label_entries = 0
    n_entries = 0
    n_inexact = 0
    lines = 0
    empty = 0
    max_label = -1
    max_feature = -1
    bits = np.empty(1, np.float64)
    word = bits.view(np.int64)
    code = OK
    at = i
    while i < size:
        start = i
        row_label = n_label_entries
        row_entry = n_entries
        row_inexact = n_inexact
        sorted_labels = True
        sorted_ids = True
        last = -1
        first_field = True
        while True:  # over the fields of one line
            c = text[i]
            while c == SPACE or c == TAB:
                i += one
                c = text[i]
            if c == CR and text[i + one] == LF:
                i += one
                c = LF
            if c == LF:
                break
            if c == HASH:
                while text[i] != LF:
                    i += one
                break
            # A number is a feature id if a colon follows it, and a label id otherwise.
            at = i
            number = 0
            if c == PLUS:
                i += one
                c = text[i]
            digit = c - ZERO
            digits_from = i
            while digit < 10:
                number = number * 10 + np.int64(digit)
                if number > MAX_NUMBER:
                    number = MAX_NUMBER
                i += one
                digit = text[i] - ZERO
            c = text[i]
            no_digits = i == digits_from
            if c == COLON:
                if no_digits:
                    code = BAD_FEATURE
                    break
                first_field = False
                number -= base
                if number < 0 or number >= n_features:
                    code = FEATURE_RANGE
                    break
                i += one
                at_value = i
                c = text[i]
                negative = c == MINUS
                if negative or c == PLUS:
                    i += one
                    c = text[i]
                m = np.uint64(0)
                first_digit = i
                digit = c - ZERO
                while digit < 10:
                    m = m * np.uint64(10) + np.uint64(digit)
                    i += one
                    digit = text[i] - ZERO
                digits = np.int64(i - first_digit)
                e = 0
                if text[i] == DOT:
                    i += one
                    first_digit = i
                    digit = text[i] - ZERO
                    while digit < 10:
                        m = m * np.uint64(10) + np.uint64(digit)
                        i += one
                        digit = text[i] - ZERO
                    e = -np.int64(i - first_digit)
                    digits -= e
                c = text[i]
                if digits == 0:
                    code = BAD_VALUE
                    break
                if c == UPPER_E or c == LOWER_E:
                    i += one
                    c = text[i]
                    down = c == MINUS
                    if down or c == PLUS:
                        i += one
                    power = 0
                    first_digit = i
                    digit = text[i] - ZERO
                    while digit < 10:
                        power = min(power * 10 + np.int64(digit), 1000000)
                        i += one
                        digit = text[i] - ZERO
                    if i == first_digit:
                        code = BAD_VALUE
                        break
                    e += -power if down else power
                    c = text[i]
                if not _is_end(c):
                    code = BAD_VALUE
                    break
                value = np.float64(m)
                if digits > MAX_DIGITS or e < -MAX_EXPONENT or e > MAX_EXPONENT:
                    certain = False
                else:
                    if e < 0 and e >= -22:
                        value /= POWERS_OF_TEN[MAX_EXPONENT - e]
                    else:
                        value *= POWERS_OF_TEN[MAX_EXPONENT + e]
                    bits[0] = value
                    from_half = (word[0] & 0x1FFFFFFF) - 0x10000000
                    normal = value > FLOAT32_NORMAL_RANGE[0] and value < FLOAT32_NORMAL_RANGE[1]
                    certain = (normal and (from_half > 8 or from_half < -8)) or m == 0
                if not certain:
                    inexact[n_inexact, 0] = n_entries
                    inexact[n_inexact, 1] = np.int64(at_value)
                    inexact[n_inexact, 2] = np.int64(i)
                    n_inexact += 1
                ids[n_entries] = number
                values[n_entries] = -value if negative else value
                n_entries += 1
                if number <= last:
                    sorted_ids = False
                last = number
                if number > max_feature:
                    max_feature = number
                continue
            if not first_field:
                code = BAD_TOKEN
                break
            first_field = False
            # Labels are numbers separated by commas. A number may have a fraction of zeros, as in 3.0.
            last_label = -1
            while True:
                if c == DOT and not no_digits:
                    i += one
                    while text[i] == ZERO:
                        i += one
                    c = text[i]
                if no_digits or not (c == COMMA or _is_end(c)):
                    code = BAD_LABEL
                    break
                number -= base
                if number < 0 or number >= n_labels:
                    code = LABEL_RANGE
                    break
                labels[n_label_entries] = number
                n_label_entries += 1
                if number <= last_label:
                    sorted_labels = False
                last_label = number
                if number > max_label:
                    max_label = number
                if c != COMMA:
                    break
                i += one
                at = i
                number = 0
                if text[i] == PLUS:
                    i += one
                digits_from = i
                digit = text[i] - ZERO
                while digit < 10:
                    number = number * 10 + np.int64(digit)
                    if number > MAX_NUMBER:
                        number = MAX_NUMBER
                    i += one
                    digit = text[i] - ZERO
                c = text[i]
                no_digits = i == digits_from
            if code != OK:
                break
        if code != OK:
            break
        # `i` is the position of the line feed.
        if not sorted_ids:
            for h in range(row_inexact, n_inexact):
                inexact[h, 0] = ids[inexact[h, 0]]
            if _sort_row(ids, values, row_entry, n_entries):
                code = DUPLICATE_FEATURE
                at = start
                n_inexact = row_inexact
                break
            for h in range(row_inexact, n_inexact):
                inexact[h, 0] = row_entry + np.searchsorted(ids[row_entry:n_entries], inexact[h, 0])
        if not sorted_labels:
            _sort_row(labels, labels, row_label, n_label_entries)
            kept = row_label + 1
            for k in range(row_label + 1, n_label_entries):  # a repeated label counts once
                if labels[k] != labels[k - 1]:
                    labels[kept] = labels[k]
                    kept += 1
            n_label_entries = kept
        blank = i == start or (i == start + one and text[start] == CR)
        lines += 1
        i += one
        if blank:
            empty += 1
        if text[start] != HASH and (not blank or empty_is_row):
            label_counts[rows] = n_label_entries - row_label
            feature_counts[rows] = n_entries - row_entry
            rows += 1
    return code, np.int64(at), rows, n_label_entries, n_entries, n_inexact, lines, empty, max_label, max_feature
