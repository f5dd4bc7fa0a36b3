"""Valid inputs, changed by chance, through the command line: every one ends with word and code.

    make fuzz                                          # all of it
    PYTHONPATH=tests python -m fuzz --only 137         # one case again, by its number

A process that has TensorFlow loaded is forked for every case (`forked`), so that a case takes
tenths of a second and no case is seen by another.
"""
