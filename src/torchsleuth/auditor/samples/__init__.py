"""The experiments across a batch: does one sample count for another?"""
