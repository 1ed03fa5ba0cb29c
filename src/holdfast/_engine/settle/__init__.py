"""Settling: outcomes are gathered, written and followed up."""
