"""Readers and writers of file formats, one module each. A bad file raises `BadInput` and nothing else; no pickle."""
