"""The thresholds of all verdicts, in one place. Percentages and points of P@k are on a scale of 100."""

# Retrieval
RETRIEVAL_IMPROVEMENT = 100.0  # the paper's "over 100 times"
MAX_RESPONSE_ERROR = 0.15  # of a mean response, from 1 or 0, in standard errors' order at 10 trials
LINEAR_EXPONENTS = (0.9, 1.1)  # of capacity = a d^b
PARITY = (0.8, 1.25)  # of a ratio of capacities
MEMORY_RATIO = 10.0  # the paper's memory of VTB
SAME_MEMORY = 2.0
EXPANSION_DIGITS = 9  # of agreement with the definition
VARIANCE_RATIO = (0.9, 1.1)  # of a simulated variance and its formula

# Sizes and times
SAME_PERCENT = 0.005
SPEEDUP = 6.28

# Trained networks
MIN_POINTS_ABOVE_FREQUENCY = 2.0  # a baseline within this of label frequency has learned nothing
MAX_LOSS_OF_SIMILAR = 1.0  # points
MIN_SHARE_OF_BEST_BASELINE = 0.5  # of P@1; a gain over a weaker baseline is not counted
RELATIVE_GAIN = 0.3  # the paper's "up to 30 %"
NEAR_PAPER = 2.0  # points, of a result that reproduces the paper's
CHANCE_RATIO = 1.1  # a P@1 of up to this times that of label frequency is random guessing
NO_DIFFERENCE = 1.0  # points, between two ways to train
MINOR_IMPACT = 2.0  # points of P@5; the paper calls 1.8 and 0.3 minor
MIN_BENEFIT = 0.5  # points, and two standard errors
CORRELATION = 0.95
PLATEAU_FRACTION = 0.1  # of the number of labels
PLATEAU_HOLDS = 0.05  # relative loss after the plateau's beginning
BAND_DIFFERENCE = 0.5  # points of recall@5
