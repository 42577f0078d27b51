"""The compiled parser of `l1,l2 f:v f:v` lines. Importing this module imports numba, so it is imported when needed.

It works on a block of whole lines, without the GIL, and reports a mistake as a code and a position; what a person
reads is made from them by `sparse_text`. The block ends with a line feed, so that no loop needs a bounds check.
"""

import numpy as np
from numba import njit

OK, TOKEN, LABEL_NUMBER, LABEL_RANGE, FEATURE_NUMBER, FEATURE_RANGE, VALUE_NUMBER, DUPLICATE = range(8)

# Powers of ten from 1e-64 to 1e64, each the double nearest to it.
REACH = 64
POWERS = np.array([float(f"1e{n}") for n in range(-REACH, REACH + 1)])

TAB, LF, CR, SPACE, HASH, PLUS, COMMA, MINUS, DOT, ZERO, COLON, UPPER_E, LOWER_E = (
    np.uint8(ord(c)) for c in "\t\n\r #+,-.0:Ee"
)
MOST_DIGITS = 19  # that always fit in 64 bits
SAFE_FLOAT32 = (1.2e-38, 3.4e38)  # inside the normal range


def compiled(**options):
    """Compile without the GIL, and keep the result for the next process where there is a place to keep it."""

    def decorate(function):
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # numba found no directory that it may write to
            return njit(nogil=True, **options)(function)

    return decorate


@compiled(inline="always")
def _is_end(c):
    return c == SPACE or c == LF or c == CR or c == TAB


@compiled()
def _sort_row(ids, values, first, last):
    """Sort one row by feature id; whether an id occurs twice. A Shell sort: numpy's takes 10 s to compile."""
    gap = (last - first) // 2
    while gap > 0:
        for k in range(first + gap, last):
            held, value, j = ids[k], values[k], k
            while j >= first + gap and ids[j - gap] > held:
                ids[j] = ids[j - gap]
                values[j] = values[j - gap]
                j -= gap
            ids[j] = held
            values[j] = value
        gap //= 2
    for k in range(first + 1, last):
        if ids[k] == ids[k - 1]:
            return True
    return False


@compiled(boundscheck=False)
def parse(
    text,  # uint8, whole lines; the last byte used is a line feed
    first,  # where the first line begins
    size,  # where the last line ends
    base,  # the id of the first feature and of the first label: 0 or 1
    n_features,  # ids at or above these are mistakes
    n_labels,
    empty_is_row,
    labels,  # int32 out, one after the other
    label_counts,  # int32 out, by row
    ids,  # int32 out
    values,  # float32 out
    feature_counts,  # int32 out, by row
    hard,  # int64 out, (entry, first byte, last byte) of each value left to exact arithmetic
):
    """Parse whole lines. Gives (code, byte, rows, labels, entries, hard values, lines, empty lines, largest ids).

    A value is m * 10^e with m of at most 19 digits. m and 10^e as doubles, and their product, are each within half
    a unit in the last place, so the product is within 4 units of the truth. Rounding it to float32 drops 29 bits:
    unless these lie within 8 units of one half, the float32 is the one nearest to the text. The rare others, and
    those out of reach of the table or of float32's normal range, are listed in `hard`.
    """
    i = np.uint64(first)
    one = np.uint64(1)
    size = np.uint64(size)
    rows = 0
    n_said = 0  # labels so far
    n_entries = 0
    n_hard = 0
    lines = 0
    empty = 0
    most_label = -1
    most_feature = -1
    bits = np.empty(1, np.float64)
    word = bits.view(np.int64)
    code = OK
    at = i
    while i < size:
        start = i
        row_label = n_said
        row_entry = n_entries
        row_hard = n_hard
        sorted_labels = True
        sorted_ids = True
        last = -1
        first_token = True
        while True:  # over the tokens of one line
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
            # A number: the id of a feature if a colon follows, a label otherwise.
            at = i
            number = 0
            if c == PLUS:
                i += one
                c = text[i]
            digit = c - ZERO
            digits_from = i
            while digit < 10:
                number = number * 10 + np.int64(digit)
                if number > 4294967296:
                    number = 4294967296
                i += one
                digit = text[i] - ZERO
            c = text[i]
            no_digits = i == digits_from
            if c == COLON:
                if no_digits:
                    code = FEATURE_NUMBER
                    break
                first_token = False
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
                    code = VALUE_NUMBER
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
                        code = VALUE_NUMBER
                        break
                    e += -power if down else power
                    c = text[i]
                if not _is_end(c):
                    code = VALUE_NUMBER
                    break
                value = np.float64(m)
                if digits > MOST_DIGITS or e < -REACH or e > REACH:
                    certain = False
                else:
                    if e < 0 and e >= -22:
                        value /= POWERS[REACH - e]
                    else:
                        value *= POWERS[REACH + e]
                    bits[0] = value
                    beyond = (word[0] & 0x1FFFFFFF) - 0x10000000
                    within = value > SAFE_FLOAT32[0] and value < SAFE_FLOAT32[1]
                    certain = (within and (beyond > 8 or beyond < -8)) or m == 0
                if not certain:
                    hard[n_hard, 0] = n_entries
                    hard[n_hard, 1] = np.int64(at_value)
                    hard[n_hard, 2] = np.int64(i)
                    n_hard += 1
                ids[n_entries] = number
                values[n_entries] = -value if negative else value
                n_entries += 1
                if number <= last:
                    sorted_ids = False
                last = number
                if number > most_feature:
                    most_feature = number
                continue
            if not first_token:
                code = TOKEN
                break
            first_token = False
            # Labels: numbers with commas between them, each perhaps with a fraction of nothing but zeros.
            row_last = -1
            while True:
                if c == DOT and not no_digits:
                    i += one
                    while text[i] == ZERO:
                        i += one
                    c = text[i]
                if no_digits or not (c == COMMA or _is_end(c)):
                    code = LABEL_NUMBER
                    break
                number -= base
                if number < 0 or number >= n_labels:
                    code = LABEL_RANGE
                    break
                labels[n_said] = number
                n_said += 1
                if number <= row_last:
                    sorted_labels = False
                row_last = number
                if number > most_label:
                    most_label = number
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
                    if number > 4294967296:
                        number = 4294967296
                    i += one
                    digit = text[i] - ZERO
                c = text[i]
                no_digits = i == digits_from
            if code != OK:
                break
        if code != OK:
            break
        # `i` is at the line feed.
        if not sorted_ids:
            for h in range(row_hard, n_hard):
                hard[h, 0] = ids[hard[h, 0]]
            if _sort_row(ids, values, row_entry, n_entries):
                code = DUPLICATE
                at = start
                n_hard = row_hard
                break
            for h in range(row_hard, n_hard):
                hard[h, 0] = row_entry + np.searchsorted(ids[row_entry:n_entries], hard[h, 0])
        if not sorted_labels:
            _sort_row(labels, labels, row_label, n_said)
            kept = row_label + 1
            for k in range(row_label + 1, n_said):  # a label said twice is one label
                if labels[k] != labels[k - 1]:
                    labels[kept] = labels[k]
                    kept += 1
            n_said = kept
        blank = i == start or (i == start + one and text[start] == CR)
        lines += 1
        i += one
        if blank:
            empty += 1
        if text[start] != HASH and (not blank or empty_is_row):
            label_counts[rows] = n_said - row_label
            feature_counts[rows] = n_entries - row_entry
            rows += 1
    return code, np.int64(at), rows, n_said, n_entries, n_hard, lines, empty, most_label, most_feature
